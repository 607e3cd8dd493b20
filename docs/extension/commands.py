"""A block ```{commands}``` shows what every command of gradless says to --help, each under its own heading."""

from typing import Any

from click.testing import CliRunner
from docutils import nodes
from docutils.parsers.rst import Directive

from gradless.cli import COMMANDS, main


class Commands(Directive):
    """The help of all commands, as it is printed."""

    def run(self) -> list[nodes.Node]:
        """Return one section per command."""
        return [self._section(name) for name in COMMANDS]

    def _section(self, name: str) -> nodes.section:
        told = CliRunner().invoke(main, [name, "--help"], prog_name="gradless", terminal_width=88)
        if told.exit_code != 0:
            raise self.error(told.output)
        section = nodes.section("", nodes.title(name, name), ids=[f"gradless-{name}"], names=[f"gradless-{name}"])
        section += nodes.literal_block(told.output, told.output, language="text")
        self.state.document.note_implicit_target(section)
        return section


def setup(app: Any) -> dict[str, Any]:
    """Make the block known to Sphinx."""
    app.add_directive("commands", Commands)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
