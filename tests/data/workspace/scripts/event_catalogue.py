"""Print the event catalogue as a Markdown table, with the team that answers for each producer."""

from __future__ import annotations

from pathlib import Path

import yaml


def rows(events: dict[str, dict], services: dict[str, dict]) -> list[str]:
    """One row for each event: name, producer, team and consumers."""
    return [
        f"| {name} | {event['producer']} | {services[event['producer']]['team']} | {', '.join(event['consumers'])} |"
        for name, event in sorted(events.items())
    ]


def orphans(events: dict[str, dict]) -> list[str]:
    """Events that nobody consumes; candidates for removal."""
    return [name for name, event in events.items() if not event["consumers"]]


if __name__ == "__main__":
    config = Path("config")
    every = yaml.safe_load((config / "events.yaml").read_text())
    owners = yaml.safe_load((config / "services.yaml").read_text())
    print("| event | producer | team | consumers |\n| --- | --- | --- | --- |")
    print("\n".join(rows(every, owners)))
