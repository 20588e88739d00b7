"""Directives: metadata, steps inside the block and below it, and every form that is refused."""

from __future__ import annotations

import time

import pytest

from kiwi_rag.errors import UsageError
from kiwi_rag.formats import parse_item
from kiwi_rag.formats.bump import with_version
from kiwi_rag.formats.directive import block_steps
from kiwi_rag.formats.outcome import ValidationResult
from kiwi_rag.model import Item
from kiwi_rag.model.refs import ItemType

BLOCK = """\
<directive name="staging" version="1.2.0">
  <metadata>
    <description>Deploy a build &amp; watch it.</description>
    <category>acme/deploy</category>
    <author>platform</author>
    <tags>deploy, staging</tags>
    <model tier="fast" />
    <limits turns="6" tokens="4096" />
    <permissions>
      <execute><tool>acme.*</tool></execute>
      <execute><script>*</script></execute>
      <fetch>*</fetch>
    </permissions>
    <context><before>acme/rules</before><before>acme/names</before></context>
  </metadata>
  <inputs>
    <input name="build" type="string" required="true">Build
      number</input>
    <input name="region" type="string" default="eu">Where to</input>
  </inputs>
  <outputs><output name="url">Where it runs</output><failure>Why not</failure></outputs>
{process}</directive>
"""
INSIDE = (
    '<process><step name="push"><description>Push it</description></step><step name="watch">Watch</step></process>\n'
)
BELOW = """
<process>
  <step name="push">
    Push & watch <it
  </step>
  <step name="watch">Watch</step>
</process>
"""


def directive(block: str = BLOCK.format(process=""), below: str = BELOW, above: str = "# Staging\n\nIntro.\n\n") -> str:
    return f"{above}```xml\n{block}```\n{below}"


def parsed(content: str) -> Item:
    outcome = parse_item(ItemType.DIRECTIVE, "acme/deploy/staging", content, "staging.md")
    assert outcome.item is not None, outcome.findings
    return outcome.item


def refusal(content: str) -> ValidationResult:
    outcome = parse_item(ItemType.DIRECTIVE, "acme/deploy/staging", content, "staging.md")
    assert any(f.is_error for f in outcome.findings)
    return outcome


def codes(outcome: ValidationResult) -> list[str]:
    return [f.code for f in outcome.findings]


def test_metadata_is_what_the_block_declares() -> None:
    metadata = parsed(directive()).metadata
    assert metadata["description"] == "Deploy a build & watch it."
    assert metadata["tags"] == ["deploy", "staging"]
    assert metadata["model"] == {"tier": "fast"}
    assert metadata["limits"] == {"tokens": "4096", "turns": "6"}
    assert metadata["context"] == {"before": ["acme/rules", "acme/names"]}
    assert metadata["permissions"] == [
        {"verb": "execute", "resource": "tool", "pattern": "acme.*"},
        {"verb": "execute", "resource": "script", "pattern": "*"},
        {"verb": "fetch", "resource": "*", "pattern": "*"},
    ]
    assert metadata["inputs"][0]["description"] == "Build number"
    assert metadata["inputs"][1]["default"] == "eu"
    assert [o["name"] for o in metadata["outputs"]] == ["url", "failure"]


def test_permissions_count_outside_of_metadata_too() -> None:
    block = '<directive name="staging" version="1.0.0"><permissions>*</permissions></directive>\n'
    assert parsed(directive(block)).metadata["permissions"] == [{"verb": "*", "resource": "*", "pattern": "*"}]


def test_steps_below_the_fence_are_read_leniently() -> None:
    steps = parsed(directive()).metadata["steps"]
    assert [s["name"] for s in steps] == ["push", "watch"]
    assert steps[0]["description"] == "Push & watch <it"


def test_steps_inside_the_block_come_with_their_lines() -> None:
    content = directive(BLOCK.format(process=INSIDE), below="")
    assert [s["description"] for s in parsed(content).metadata["steps"]] == ["Push it", "Watch"]
    (line,) = {line for _, line in block_steps(content)}
    assert "<process>" in content.split("\n")[line - 1]


def test_the_process_inside_the_block_is_a_body_section() -> None:
    item = parsed(directive(BLOCK.format(process=INSIDE), below=""))
    assert [s.heading for s in item.sections if s.kind == "body"][-1] == ("process",)


def test_summary_is_the_searchable_text() -> None:
    summary = parsed(directive()).sections[0]
    assert summary.kind == "summary"
    for line in ("Directive: staging", "Category: acme/deploy", "Input build: Build number", "Step watch: Watch"):
        assert line in summary.text.split("\n")


def test_each_step_is_a_section_with_true_lines() -> None:
    content = directive()
    item = parsed(content)
    push = next(s for s in item.sections if s.heading == ("process", "push"))
    assert content.split("\n")[push.start_line - 1] == '  <step name="push">'
    assert push.text.endswith("</step>")


def test_signature_lines_of_other_tools_are_left_out_and_swallow_nothing() -> None:
    above = "<!-- tool:signed:2026-01-01T00:00:00Z:abc\n<!-- tool:unsigned -->\n# Staging\n\nIntro.\n\n"
    item = parsed(directive(above=above))
    assert item.sections[1].start_line == 3
    assert not any("signed" in s.text for s in item.sections)


def test_an_indented_example_block_is_no_second_directive() -> None:
    below = BELOW.replace("Watch", "\n    ```xml\n    <permissions/>\n    ```\n")
    assert parsed(directive(below=below)).findings == ()


@pytest.mark.parametrize("second", ["```xml\n{}```\n", "~~~xml\n{}~~~\n", "````\n{}````\n", "{}", "    ```xml\n    {}"])
def test_two_directive_blocks_are_refused(second: str) -> None:
    below = "\n" + second.format(BLOCK.format(process=""))
    assert "structure.two-directives" in codes(refusal(directive(below=below)))


def test_two_directives_in_one_fence_are_refused() -> None:
    block = BLOCK.format(process="")
    assert "structure.two-directives" in codes(refusal(directive(block + block)))


@pytest.mark.parametrize("rest", ["Do this too.\n", "<x/>\n", "<!-- and this -->\n"])
def test_text_after_the_end_tag_is_refused_at_its_line(rest: str) -> None:
    content = directive(BLOCK.format(process="") + rest)
    finding = next(f for f in refusal(content).findings if f.code == "form.text-after-directive")
    lines = content.split("\n")
    assert lines[finding.line - 1] in (rest.strip(), "</directive>")


def test_a_directive_in_an_unmarked_fence_names_its_line() -> None:
    outcome = refusal("# T\n\n```\n<directive name='a' version='1.0.0'/>\n```\n")
    assert codes(outcome) == ["form.no-directive"]
    assert outcome.findings[0].line == 3


def test_an_unclosed_fence_is_refused() -> None:
    assert codes(refusal("```xml\n<directive name='staging' version='1.0.0'/>\n")) == ["form.unclosed-fence"]


def test_ill_formed_xml_is_refused_at_its_true_line() -> None:
    content = directive('<directive name="staging" version="1.0.0">\n<a>\n</b>\n</directive>\n')
    (finding,) = refusal(content).findings
    assert finding.code == "form.xml"
    assert content.split("\n")[finding.line - 1] == "</b>"


BILLION_LAUGHS = """<!DOCTYPE lolz [<!ENTITY a "lol"><!ENTITY b "&a;&a;&a;&a;&a;&a;&a;">
<!ENTITY c "&b;&b;&b;&b;&b;&b;">]>
<directive name="staging" version="1.0.0"><description>&c;</description></directive>
"""
EXTERNAL = """<?xml version="1.0"?>
<!DOCTYPE d [<!ENTITY x SYSTEM "file:///etc/hostname">]>
<directive name="staging" version="1.0.0"><description>&x;</description></directive>
"""


@pytest.mark.parametrize("block", [BILLION_LAUGHS, EXTERNAL, '<directive name="staging"><!DOCTYPE a>\n</directive>\n'])
def test_dtd_and_entities_are_refused(block: str) -> None:
    outcome = parse_item(ItemType.DIRECTIVE, "staging", directive(block))
    assert outcome.item is None
    assert {f.code for f in outcome.findings} <= {"form.xml-dtd", "form.no-directive"}


@pytest.mark.parametrize(
    ("block", "code"),
    [
        ("<directive name='a'>" + "<a>" * 200_000, "form.xml-depth"),
        ("<directive name='a'>" + "<a>" * 24 + "<!--", "form.xml-depth"),
        ("<directive " + " ".join(f"a{n}=''" for n in range(200_000)) + "></directive>", "form.xml-attributes"),
        ("<directive name='a'>" + "<a/>" * 200_000 + "</directive>", "form.xml-elements"),
    ],
)
def test_depth_attributes_and_elements_are_capped(block: str, code: str) -> None:
    started = time.process_time()
    assert codes(refusal(directive(block + "\n"))) == [code]
    assert time.process_time() - started < 5


def test_an_encoding_in_the_xml_declaration_has_no_say() -> None:
    declaration = '<?xml version="1.0" encoding="utf-7"?>\n'
    block = f"{declaration}<directive name='staging' version='1.0.0'><description>ü+AGE-</description></directive>\n"
    assert parsed(directive(block)).metadata["description"] == "ü+AGE-"


def test_version_is_replaced_where_it_is_declared() -> None:
    content = directive("<directive name='staging'\n  version='1.2.0'>1.2.0</directive>\n", above="version='1.2.0'\n")
    changed = with_version(ItemType.DIRECTIVE, content, "2.0.0")
    assert changed.count("2.0.0") == 1
    assert parsed(changed).ref.version == "2.0.0"


def test_no_version_to_replace_is_said() -> None:
    with pytest.raises(UsageError):
        with_version(ItemType.DIRECTIVE, directive("<directive name='staging'>version='1'</directive>\n"), "2.0.0")
