"""The pages in a real browser: from disk, and live while a run is going."""

import contextlib
import itertools
import json
import re
import shutil
import threading
import time

import jax.numpy as jnp
import numpy as np
import pytest

import gradless as gl
from gradless.report import write_report
from gradless.report.live import LiveServer

webdriver = pytest.importorskip("selenium.webdriver", reason="selenium is not installed: no browser test")
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
DRIVER = shutil.which("chromedriver")
pytestmark = pytest.mark.skipif(
    not (CHROMIUM and DRIVER), reason="no Chromium with chromedriver is installed: no browser test"
)
EVIL = "<script>document.title='owned'<|script>&\"'<img src=x onerror=alert(1)>"
PATIENCE = 60.0  # seconds, on a busy machine


@pytest.fixture(scope="module")
def driver():
    """One browser for all tests; evil.example is a name for this machine, as an attacker's could be."""
    options = webdriver.ChromeOptions()
    options.binary_location = CHROMIUM
    words = ("headless=new", "no-sandbox", "disable-gpu", "disable-dev-shm-usage", "hide-scrollbars")
    for word in (*words, "host-resolver-rules=MAP evil.example 127.0.0.1"):
        options.add_argument(f"--{word}")
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    browser = webdriver.Chrome(options=options, service=webdriver.ChromeService(DRIVER))
    yield browser
    browser.quit()


@pytest.fixture
def browser(driver):
    """The browser, which must have nothing to complain about in the end."""
    screen(driver)
    driver.get_log("browser")
    yield driver
    assert driver.get_log("browser") == []
    driver.get("about:blank")


def screen(driver, width=1200, scheme="light", media=""):
    size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": False}
    driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    features = [{"name": "prefers-color-scheme", "value": scheme}]
    driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features, "media": media})


def js(driver, words, *given):
    return driver.execute_script(f"return {words}", *given)


def texts(driver, selector):
    return js(driver, "[...document.querySelectorAll(arguments[0])].map((node) => node.textContent)", selector)


def wait(condition):
    until = time.monotonic() + PATIENCE
    while not (found := condition()):
        assert time.monotonic() < until
        time.sleep(0.05)
    return found


def bowl(x):
    return jnp.sum(x**2)


@pytest.fixture(scope="module")
def chains_run(tmp_path_factory):
    path = tmp_path_factory.mktemp("chains") / "chains"
    gl.train(gl.amc(sigma=0.1, n_s=5), bowl, np.ones(3, np.float32), steps=400, run=path, chains=3)
    return path


@pytest.fixture(scope="module")
def report(chains_run):
    return write_report([chains_run], chains_run / "report.html").as_uri()


@pytest.fixture(scope="module")
def comparison(chains_run, bowl_run):
    return write_report([chains_run, bowl_run], chains_run / "comparison.html").as_uri()


def test_the_report_opens_from_disk_and_its_charts_are_drawn(browser, report):
    browser.get(report)
    assert browser.title == "chains - gradless"
    assert texts(browser, "#state") == ["ended"]
    assert texts(browser, "#curves figcaption .name") == [
        "Loss U",
        "Acceptance A",
        "Move scale σ",
        "Acceptance against loss",
    ]
    lengths = js(browser, "[...document.querySelectorAll('#curves path.line')].map((path) => path.getTotalLength())")
    assert len(lengths) == 4
    assert min(lengths) > 100
    assert js(browser, "document.querySelectorAll('#curves figure:first-child path.thin').length") == 3
    assert js(browser, "document.querySelectorAll('#curves path.band').length") == 3


def test_every_chart_says_what_it_shows_in_words_and_in_a_table(browser, report):
    browser.get(report)
    words = js(browser, "[...document.querySelectorAll('svg[role=img]')].map((svg) => svg.getAttribute('aria-label'))")
    assert len(words) == 4
    assert re.match(r"Loss U, against step n\. median: from 3 at 0 to \S+ at 400, lowest \S+, highest 3\.", words[0])
    js(browser, "document.querySelector('#curves details').open = true")
    wait(lambda: texts(browser, "#curves details td"))
    cells = texts(browser, "#curves details td")
    assert cells[:2] == ["0", "3"]
    assert cells[-2] == "400"


def test_axes_are_switched_by_pointer_and_by_keys(browser, report):
    browser.get(report)
    path = "document.querySelector('#curves path.line').getAttribute('d')"
    label = "document.querySelector('#curves .label').textContent"
    seen = [js(browser, path)]
    assert js(browser, label) == "step n"
    labels = {"x-seconds": "time (s)", "x-samples": "samples seen", "x-evaluations": "evaluations of the loss"}
    for choice, name in {**labels, "x-step": "step n"}.items():
        browser.find_element("css selector", f"label[for={choice}]").click()
        assert js(browser, label) == name
    assert js(browser, path) == seen[0]
    for choice in ("xlog-log", "ylog-linear"):
        browser.find_element("css selector", f"label[for={choice}]").click()
        seen.append(js(browser, path))
    assert len(set(seen)) == 3
    chosen = browser.find_element("id", "x-step")
    chosen.send_keys("\ue014")  # arrow to the right
    assert js(browser, label) == "evaluations of the loss"


def test_what_a_run_has_not_counted_is_not_offered_to_be_drawn_against(browser, chains_run, tmp_path):
    """An outside program does not say how many samples it has read."""
    path = shutil.copytree(chains_run, tmp_path / "run")
    rows = [json.loads(line) for line in (path / "metrics.jsonl").read_text().splitlines()]
    lines = [json.dumps({name: value for name, value in row.items() if name != "samples"}) for row in rows]
    (path / "metrics.jsonl").write_text("\n".join([*lines, ""]))
    browser.get(write_report([path], tmp_path / "report.html").as_uri())
    shown = "[...document.querySelectorAll('input[name=x]')].filter((input) => !input.labels[0].hidden)"
    assert js(browser, f"{shown}.map((input) => input.value)") == ["step", "evaluations", "seconds"]


def test_a_cursor_walks_along_a_chart_by_keys(browser, report):
    browser.get(report)
    chart = browser.find_element("css selector", "#curves svg[role=img]")
    js(browser, "arguments[0].focus()", chart)
    chart.send_keys("\ue011")  # home
    assert texts(browser, "#curves .readout")[0] == "step 0: 3"
    chart.send_keys("\ue010")  # end
    assert texts(browser, "#curves .readout")[0].startswith("step 400: ")
    chart.send_keys("\ue00c")  # escape
    assert texts(browser, "#curves .readout")[0] == ""


def test_several_runs_share_axes_and_have_a_table(browser, comparison):
    browser.get(comparison)
    assert browser.title == "2 runs compared - gradless"
    assert texts(browser, "#top tbody td:first-child") == ["chains", "bowl"]
    assert texts(browser, "#curves figure:first-child .legend span") == ["chains", "bowl"]
    dashes = js(
        browser,
        "[...document.querySelectorAll('#curves figure:first-child path.line')]"
        ".map((path) => getComputedStyle(path).strokeDasharray)",
    )
    assert len(set(dashes)) == 2  # told apart in grey print too
    assert "plan.steps" in texts(browser, "#rest section tbody td:first-child")


def test_a_short_run_does_not_hide_the_rest_of_a_longer_one(browser, chains_run, bowl_run, tmp_path):
    browser.get(write_report([bowl_run, chains_run], tmp_path / "report.html").as_uri())
    assert "at the end, of several chains the median, is that of" in texts(browser, "#verdict")[0]
    js(browser, "document.querySelector('#curves details').open = true")
    wait(lambda: texts(browser, "#curves details td"))
    cells = texts(browser, "#curves details td")
    assert cells[:3] == ["0", "3", "3"]
    assert cells[-3:-1] == ["400", "–"]  # the first run has ended long before
    chart = browser.find_element("css selector", "#curves svg[role=img]")
    js(browser, "arguments[0].focus()", chart)
    chart.send_keys("\ue010")  # end
    assert texts(browser, "#curves .readout")[0] == f"step 400: –  ·  {cells[-1]}"


def test_more_runs_than_colours_are_told_apart(browser, bowl_run, tmp_path):
    browser.get(write_report([bowl_run] * 9, tmp_path / "report.html").as_uri())
    styles = js(
        browser,
        "[...document.querySelectorAll('#curves figure:first-child path.line')]"
        ".map((path) => [getComputedStyle(path).stroke, getComputedStyle(path).strokeDasharray].join())",
    )
    assert len(set(styles)) == 9


def test_a_malicious_name_is_inert_text(browser, bowl_run, tmp_path):
    run = shutil.copytree(bowl_run, tmp_path / EVIL)
    settings = json.loads((run / "settings.json").read_text())
    settings["settings"] |= {"problem": EVIL, EVIL: EVIL}
    (run / "settings.json").write_text(json.dumps(settings))
    for runs in ([run], [run, bowl_run]):
        browser.get(write_report(runs, tmp_path / "report.html").as_uri())
        assert "owned" not in browser.title.replace(EVIL, "")
        assert js(browser, "document.scripts.length") == 2
        assert js(browser, "document.images.length") == 0
        assert EVIL in js(browser, "document.body.innerText")
    with LiveServer(run.parent) as server, serving(server):
        browser.get(server.address)
        wait(lambda: texts(browser, "tbody a") == [EVIL])
        browser.find_element("css selector", "tbody a").click()
        wait(lambda: texts(browser, "h1") == [EVIL])
        assert js(browser, "document.scripts.length") == 2


def test_the_policy_stops_a_script_that_got_in_all_the_same(driver, report):
    driver.get(report)
    words = "const s = document.createElement('script'); s.append('window.owned = 1'); document.body.append(s)"
    driver.execute_script(f"try {{ {words} }} catch {{}}")
    assert js(driver, "window.owned") is None
    assert (
        js(driver, "(() => { try { document.body.innerHTML = '<b>x</b>'; return 'set' } catch { return 'no' } })()")
        == "no"
    )
    driver.get_log("browser")


@pytest.mark.parametrize("page", ["report", "comparison"])
def test_nothing_is_wider_than_a_phone(browser, request, page):
    screen(browser, width=360)
    browser.get(request.getfixturevalue(page))
    assert js(browser, "document.documentElement.scrollWidth") == 360
    assert js(browser, "document.querySelector('#curves svg').getBoundingClientRect().right") < 360


def test_numbers_along_an_axis_keep_apart(browser, tmp_path):
    gl.train(gl.metropolis(0.01), bowl, np.ones(3, np.float32), steps=3000, run=tmp_path / "run")
    page = write_report([tmp_path / "run"], tmp_path / "report.html").as_uri()
    words = (
        "[...document.querySelector('#curves svg').querySelectorAll('.tick[text-anchor]')]"
        ".map((tick) => tick.getBoundingClientRect()).map((box) => [box.top, box.left, box.right])"
    )
    for width in (320, 360, 375, 430, 1200):
        screen(browser, width=width)
        browser.get(page)
        boxes = js(browser, words)
        along = sorted((left, right) for top, left, right in boxes if top == max(top for top, *_ in boxes))
        assert len(along) > 2
        assert all(right < left for (_, right), (left, _) in itertools.pairwise(along))


def test_dark_and_print(browser, report):
    browser.get(report)
    ground = "getComputedStyle(document.body).backgroundColor"
    stroke = "getComputedStyle(document.querySelector('path.line')).stroke"
    assert js(browser, ground) == "rgb(255, 255, 255)"
    dark_ink = js(browser, stroke)
    screen(browser, scheme="dark")
    assert js(browser, ground) == "rgb(16, 19, 22)"
    assert js(browser, stroke) != dark_ink
    screen(browser, scheme="dark", media="print")
    assert js(browser, ground) == "rgb(255, 255, 255)"
    assert js(browser, stroke) == dark_ink  # on paper, whatever the screen is
    assert js(browser, "getComputedStyle(document.querySelector('.controls')).display") == "none"


@contextlib.contextmanager
def serving(server):
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield
    finally:
        server.stop()
        thread.join(10)


class Stop(Exception):
    pass


class Going(threading.Thread):
    """A run that goes on in the background until it is told to stop."""

    def __init__(self, train, **settings):
        super().__init__(daemon=True)
        self.stopping = threading.Event()
        self.train, self.settings = train, settings

    def run(self):
        with contextlib.suppress(Stop):
            self.train(callback=self.follow, **self.settings)

    def follow(self, row):
        if self.stopping.wait(0.02):
            raise Stop

    def __enter__(self):
        self.start()

    def __exit__(self, *_):
        self.stopping.set()
        self.join(PATIENCE)


def test_the_live_page_follows_a_run_that_goes_stops_is_resumed_and_deleted(browser, tmp_path):
    run = tmp_path / "runs" / "going"
    start = np.ones(30, np.float32)
    settings = {"loss": bowl, "params": start, "run": run}
    number, line = ".tiles dd", "document.querySelector('path.line').getAttribute('d')"
    with contextlib.ExitStack() as stack:
        with Going(gl.train, algorithm=gl.metropolis(sigma=1e-3), steps=10**8, record_every=200, **settings):
            wait(lambda: (run / "metrics.jsonl").exists() and (run / "metrics.jsonl").stat().st_size > 1000)
            server = stack.enter_context(LiveServer(run))
            stack.enter_context(serving(server))
            browser.get(server.address)
            js(browser, "window.isTheSamePage = true")
            assert texts(browser, "#state") == ["running"]
            assert "Live. Last record" in texts(browser, "#footer")[0]
            before = texts(browser, number), js(browser, line)
            wait(lambda: texts(browser, number) != before[0])
            wait(lambda: js(browser, line) != before[1])
        wait(lambda: texts(browser, "#state") == ["stopped"])
        before = texts(browser, "#verdict")
        with Going(gl.resume, steps=10**8, **settings):
            wait(lambda: texts(browser, "#state") == ["running"])
            wait(lambda: texts(browser, "#verdict") != before)
        shutil.rmtree(run)
        wait(lambda: texts(browser, "#state") == ["gone"])
        assert "is not a folder" in texts(browser, "#trouble")[0]
        assert js(browser, "window.isTheSamePage")


def test_a_foreign_host_is_refused(driver, bowl_run):
    with LiveServer(bowl_run) as server, serving(server):
        driver.get(server.address.replace("127.0.0.1", "evil.example"))
        assert "answers only to 127.0.0.1 and localhost" in js(driver, "document.body.innerText")
        driver.get(server.address.replace("127.0.0.1", "localhost"))
        assert driver.title == "bowl - gradless"
        driver.get("about:blank")
    driver.get_log("browser")
