"""Asking the registry who lost trust, before a local tier is judged; and saying how old the answer is."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime

from kiwi_rag.app import App
from kiwi_rag.cli.session import Session
from kiwi_rag.errors import RegistryContradicted, RegistryError

WAIT_SECONDS = 5.0


async def learn_who_lost_trust(session: Session, app: App) -> None:
    """Ask the registry, if this user has one, and judge by its answer from here on.

    Without an answer what is remembered counts, and a notice says how old that is.
    """
    if not app.registry_exists:
        return
    try:
        async with asyncio.timeout(min(WAIT_SECONDS, app.settings.deadline)):
            await app.witness.look(fully=True)
    except TimeoutError:
        session.say(f"the registry did not answer in time; {_age(app)}")
    except (RegistryError, RegistryContradicted) as error:
        session.say(f"{error.message}; {_age(app)}")
    app.judge_anew()


def _age(app: App) -> str:
    asked = app.witness.memory.asked_at()
    if asked is None:
        return "it never told who was revoked"
    minutes = int((datetime.now(UTC) - asked).total_seconds() // 60)
    ago = f"{minutes} min" if minutes < 120 else f"{minutes // 60} h" if minutes < 2880 else f"{minutes // 1440} days"
    return f"who was revoked is known as of {asked:%Y-%m-%d %H:%M} UTC ({ago} ago)"
