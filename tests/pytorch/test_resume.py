"""A resumed run goes on to the last bit, in every precision and through a file."""

import io

import pytest
import torch
from torch import nn

from gradless.pytorch import AMC

X = torch.randn(16, 3, generator=torch.Generator().manual_seed(0))
SETTINGS = {
    "plain": {},
    "mu": {"epsilon": 0.2},
    "signal norm": {"epsilon": 0.2, "signal_norm": True},
    "fixed batch": {"epsilon": 0.2, "signal_norm": True, "fixed_batch": True},
    "hot": {"temperature": lambda n: 0.1 / (n + 1), "fixed_batch": True},
}


def build(dtype, settings):
    torch.manual_seed(1)
    model = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Dropout(0.2 * (1 - settings.get("fixed_batch", 0))))
    model.append(nn.BatchNorm1d(4)).append(nn.Linear(4, 1)).to(dtype)
    return model, AMC(model, sigma=0.05, n_s=3, **settings)


def run(model, optimizer, steps):
    dtype = model[0].weight.dtype
    for _ in range(steps):
        rows = X if optimizer.fixed_batch else X.roll(optimizer.n, 0)[:8]
        optimizer.step(lambda rows=rows: (model(rows.to(dtype)) - rows[:, :1].to(dtype)).square().mean())


def everything(model, optimizer):
    """All that a run leaves behind, with the dtypes."""
    state = optimizer.state_dict()
    tensors = {f"model {name}": value for name, value in model.state_dict().items()}
    tensors |= {f"{number} {name}": value for number, own in state["state"].items() for name, value in own.items()}
    tensors |= {f"noise {device}": value for device, value in state["amc"]["noise"].items()}
    rest = {name: value for name, value in state["amc"].items() if name != "noise"}
    return {name: (value.dtype, value.tolist()) for name, value in tensors.items()}, state["param_groups"], rest


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("settings", SETTINGS.values(), ids=SETTINGS)
def test_a_resumed_run_goes_on_to_the_last_bit(dtype, settings):
    is_model_first = dtype == torch.float32  # either order will do
    model, optimizer = build(dtype, settings | {"seed": 7})
    run(model, optimizer, 25)
    file = io.BytesIO()
    torch.save([model.state_dict(), optimizer.state_dict(), torch.get_rng_state()], file)
    run(model, optimizer, 25)
    assert 0 < optimizer.num_accepted < 50

    other, resumed = build(dtype, settings | {"seed": 8})
    run(other, resumed, 3)  # what it was before must not matter
    file.seek(0)
    of_model, of_optimizer, randomness = torch.load(file, weights_only=True)
    if is_model_first:
        other.load_state_dict(of_model)
    resumed.load_state_dict(of_optimizer)
    if not is_model_first:
        other.load_state_dict(of_model)
    torch.set_rng_state(randomness)
    run(other, resumed, 25)
    assert everything(other, resumed) == everything(model, optimizer)


def test_mu_and_lambda_stay_in_float32_beside_bfloat16_parameters():
    model, optimizer = build(torch.bfloat16, SETTINGS["fixed batch"])
    optimizer.param_groups[0]["n_s"] = float("inf")
    run(model, optimizer, 20)
    optimizer.load_state_dict(optimizer.state_dict())
    own = optimizer.state[model[0].weight]
    assert own["mu"].dtype == own["lam"].dtype == torch.float32
    assert (own["mu"] != own["mu"].to(torch.bfloat16)).any()  # there were digits to lose


def test_a_state_of_another_optimizer_is_refused():
    model, optimizer = build(torch.float32, {})
    other = torch.optim.SGD(model.parameters(), lr=0.1)
    with pytest.raises(ValueError, match=r"must be one of gradless\.pytorch\.AMC, got the keys state, param_groups"):
        optimizer.load_state_dict(other.state_dict())


def test_a_state_with_signal_norm_needs_an_optimizer_that_has_it():
    model = nn.Linear(2, 1)
    state = AMC(model, signal_norm=True).state_dict()
    for other in (AMC(model), AMC(model.parameters())):
        with pytest.raises(ValueError, match="signal_norm must be True here too"):
            other.load_state_dict(state)
    AMC(model, signal_norm=True).load_state_dict(AMC(model).state_dict())


def test_a_state_from_before_the_first_step_brings_its_seed():
    ends = []
    model, optimizer = build(torch.float32, {"seed": 1})
    other, resumed = build(torch.float32, {"seed": 2})
    resumed.load_state_dict(optimizer.state_dict())
    for pair in ((model, optimizer), (other, resumed)):
        torch.manual_seed(0)
        run(*pair, 10)
        ends.append(pair[0][0].weight.detach())
    assert torch.equal(*ends)


def test_random_numbers_of_another_kind_of_device_are_refused():
    model, optimizer = build(torch.float32, {})
    run(model, optimizer, 1)
    elsewhere = AMC([nn.Parameter(torch.empty_like(p, device="meta")) for p in model.parameters()])
    with pytest.raises(ValueError, match="random numbers drawn on cpu cannot go on on meta: load on the same kind"):
        elsewhere.load_state_dict(optimizer.state_dict())


def test_a_state_loaded_beside_other_parameters_does_not_bring_their_loss():
    """U(x) of the saved net is not U(x) of this one, and x itself has not changed since this optimizer's last step."""
    (model, optimizer), (other, resumed) = (build(torch.float32, {"fixed_batch": True, "seed": s}) for s in (1, 2))
    run(model, optimizer, 40)
    run(other, resumed, 3)  # not at a step at which the loss is measured again anyway
    before = float(resumed.loss)
    assert float(optimizer.loss) < 0.9 * before
    resumed.load_state_dict(optimizer.state_dict())
    resumed.param_groups[0]["sigma"] = 1e-9
    run(other, resumed, 1)
    assert abs(float(resumed.loss) - before) < 1e-5


def test_a_loaded_state_is_a_copy():
    model, optimizer = build(torch.float32, SETTINGS["mu"])
    run(model, optimizer, 20)
    state = optimizer.state_dict()
    other, resumed = build(torch.float32, SETTINGS["mu"])
    resumed.load_state_dict(state)
    before = optimizer.state[model[0].weight]["mu"].clone()
    run(other, resumed, 20)
    assert torch.equal(optimizer.state[model[0].weight]["mu"], before)


class Remembering(nn.Module):
    """Makes a buffer in its first pass, before another one by name, and makes that one longer in each."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 1)
        self.register_buffer("long", torch.zeros(0))

    def forward(self, x):
        if not hasattr(self, "cache"):
            self.register_buffer("cache", torch.arange(4.0))
        self.long = torch.cat([self.long, torch.ones(1)])
        return self.layer(x + self.cache)


def test_a_model_that_makes_buffers_as_it_goes_is_gone_on_with():
    x = torch.randn(8, 4)
    model = Remembering()
    settings = {"sigma": 0.1, "fixed_batch": True, "seed": 0}
    optimizer = AMC(model, **settings)
    optimizer.step(lambda: model(x).square().mean())
    fresh = Remembering()
    fresh.layer.load_state_dict(model.layer.state_dict())
    resumed = AMC(fresh, **settings)
    resumed.load_state_dict(optimizer.state_dict())
    for _ in range(5):
        one, other = (o.step(lambda m=m: m(x).square().mean()) for m, o in ((model, optimizer), (fresh, resumed)))
        assert one == other
