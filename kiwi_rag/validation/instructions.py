"""Whether a text that a reader does not see reads like an instruction to an agent."""

from __future__ import annotations

import base64
import re
import unicodedata
from urllib.parse import unquote

from kiwi_rag.formats.elements import unescape

_AGENT = (
    r"ais?|assistants?|agents?|llms?|(?:language|ai) models?|chat ?bots?|claude|chatgpt|gpt|copilot|gemini|codex"
    r"|cursor|automat\w+ (?:reader|tool)s?|system"
)
_ASSET = (
    r"secrets?|tokens?|passwords?|passphrases?|credentials?|(?:api|private|ssh|access)[ _-]?keys?|keys?|\.?ssh|\.env"
    r"|env(?:ironment)?|conversation|chat|history|prompts?|contents?|source code|cookies?|wallets?"
)
_PRIVATE = (
    r"~/\.\w+|\.env|\.npmrc|\.netrc|id_rsa|/etc/passwd|\$\{?[A-Z_]*(?:KEY|TOKEN|SECRET|PASSWORD)|credentials"
    r"|private keys?|secrets|environment variables|database dump|admin (?:password|token|account|rights|access)"
    r"|production (?:database|tables|data|servers?)"
)
_TAKE = (
    r"send|post|upload|forward|e-?mail|reveal|leak|exfiltrate|transmit|share|steal|collect|paste|give|print|copy"
    r"|output"
)
_RUN = r"run|execute|curl|wget|bash|eval|install|download|fetch|invoke|call|open|visit|clone|pip|npx|npm"
_HARM = (
    r"delete|remove|drop|rm|overwrite|wipe|disable|approve|merge|push|deploy|transfer|pay|buy|recommend|insert|add"
    r"|append|include|replace|commit|grant|skip|use|forget"
)
_SAY = r"tell|say|reply|respond|answer|write|claim|mention|warn|inform|ask|report|summari[sz]e|translate|follow"
WORD, SENTENCE, PROSE = 1, 3, 4
"""Least score of an instruction: where a text is hidden on purpose, in short texts, and where prose is usual."""
# What an instruction is made of, and the weight of each.
_SIGNS = tuple(
    (re.compile(rf"(?<![\w-])(?:{pattern})(?![\w-])", re.IGNORECASE), weight)
    for pattern, weight in (
        # Other instructions are not to be followed.
        (r"(?:ignore|disregard|forget|override|bypass|discard|skip|replace)\b[^.!?]{0,40}?\b(?:instructions?|rules?"
         r"|prompts?|guidelines?|above|previous|prior|earlier|polic(?:y|ies)|context|told|reviews?|checks?|safety)"
         r"|ignorier\w*|ignora(?!ble|n[ct])\w*|игнорир\w*|\w*(?:忽略|无视|無視)\w*|system override", 4),
        (r"obey|jailbreak|prompt injection|system prompt|exfiltrate|new (?:instructions|(?:task|rules|orders|goal):)"
         r"|from now on|you are now|stop here|developer mode|no restrictions|pretend (?:to|that|you)|do whatever"
         r"|(?:do not|don't|never) (?:follow|obey|trust|believe|listen)"
         r"|your (?:initial |original |hidden |system |own )*(?:instructions|prompt|guidelines)", 3),
        (rf"^\W*as (?:an?|the) (?:[\w-]+ ){{0,2}}(?:{_AGENT})", 2),
        # An agent is addressed.
        (rf"(?:notes?|message|important|attention|hint|instructions?|reminder) (?:to|for)\b[^.!?]{{0,30}}?"
         rf"\b(?:{_AGENT}|whoever|anyone|reads?|reader)", 2),
        (rf"(?:^|[\"'(])\W*(?:dear |hey |hello |attention )?(?:{_AGENT}) ?(?:[,:!]|$)"
         rf"|(?:{_AGENT}) (?:must|should|shall|will|may|can|needs? to|have to|has to|are to|is to)"
         rf"|you are (?:an? )?(?:{_AGENT})", 2),
        (_AGENT, 1),
        # What to do, and not to say.
        (rf"(?:{_TAKE})\b[^.!?]{{0,50}}?(?<![\w-])(?:{_ASSET})", 2),
        (_PRIVATE, 2),
        (r"(?:without|do not|don't|never)\b[^.!?]{0,15}?\b(?:telling|asking|informing|mention(?:ing)?|tell|inform"
         r"|reveal|disclose|ask|notify|warn|say)|(?:tell|inform) (?:nobody|no one|anyone)|secretly|silently", 2),
        (r"(?:when|whenever|before|after|while|if|once) (?:you|asked|summari[sz]ing|answering|replying"
         r"|(?:the )?(?:user|reader)s?)\b[^.!?]{0,30}?"
         r"\b(?:answer|reply|respond|summari[sz]e|read|process|review|asks?|translate|finish|see|find|add)\w*", 2),
        (r"(?:tell|convince|persuade|instruct|ask|inform) (?:the |your )?(?:users?|readers?|humans?|customers?)", 2),
        (r"(?:user|owner|admin\w*|maintainer|operator|human|developer)s? (?:has|have) (?:already |explicitly )?\w+ed"
         r"|(?:you have|with) (?:the )?permission|authori[sz]ed to", 3),
        (rf"(?:{_TAKE})\b[^.!?]{{0,80}}? (?:to|at) (?:https?://|[\w.+-]+@|[\w-]+\.\w{{2,}})", 2),
        (r"https?://\S+ [^.!?]{0,40}\b(?:run|execute|follow|install|obey)", 2),
        (r"(?:delete|drop|wipe|erase|destroy|overwrite)\b[^.!?]{0,20}\b(?:repository|database|tables?|backups?|disk|home"
         r"|all (?:the )?files|everything)|(?:transfer|pay)\b[^.!?]{0,30}\b(?:wallet|coins?|bitcoin)", 2),
        (r"(?:approve|merge|push|deploy|skip)\b[^.!?]{0,30}\b(?:without|right away|straight|directly|immediately)", 2),
        (rf"(?:{_HARM}) (?:all|every|everything|any)", 1),
        (r"(?:reply|respond|answer|speak) (?:only|always|in|as|exactly)", 2),
        (r"(?:positive|good|high|best) (?:review|rating|score|grade)", 2),
        (r"rm -rf|(?:curl|wget)\b[^.!?\n]{0,80}\| ?(?:ba|z)?sh|open a shell|ignore all|reverse shell|/dev/tcp"
         r"|bash -i|back ?doors?|malware", 3),
        (r"you (?:are|must|should|will|can|may|have|need)|your (?:task|role|job|user|tools?|rules?|system)", 1),
        (r"must|always|never|do not|don't|instead|immediately|please|important", 1),
        (rf"{_RUN}|{_HARM}", 1),
        (rf"{_TAKE}|{_SAY}", 1),
    )
)  # fmt: skip
# One of these is enough in an element that is hidden on purpose.
_WORD = re.compile(
    rf"\b(?:ignore|disregard|forget|override|bypass|pretend|obey|comply|instructions?|prompt|jailbreak|users?|tools?|api"
    rf"|you|your|stop|must|always|never|do not|don't|secrets?|tokens?|passwords?|credentials?|(?:api|private) keys?"
    rf"|{_AGENT}|{_RUN}|{_HARM}|{_TAKE}|{_SAY})\b|ignor|игнорир|忽略|无视|無視",
    re.IGNORECASE,
)
_ENCODED = re.compile(r"[A-Za-z0-9+/_-]{24,}={0,2}")
_HEX = re.compile(r"(?:[0-9A-Fa-f]{2})+")
_SPACED = re.compile(r"(?<![^\W_])[^\W\d_](?:[ ._*|/-]{1,3}[^\W\d_](?=[\W_]|$)){15,}")
_SENTENCE = re.compile(r"[^.!?]{1,300}(?:[.!?](?!\s)[^.!?]{0,100})*[.!?]?")
_MARKUP = re.compile(r"</?[A-Za-z][^<>]*>")


def instructs(text: str, least: int) -> bool:
    """Return whether a text may instruct an agent: by one word if `least` is `WORD`, else by a sentence's score."""
    if _SPACED.search(text):
        return True
    plain = unicodedata.normalize("NFKC", unquote(unescape(_MARKUP.sub(" ", text))))
    if least == WORD and _WORD.search(plain):
        return True
    decoded = "\n".join(_decoded(match[0]) for match in _ENCODED.finditer(plain))
    return max(_score(plain), _score(decoded)) >= max(least, SENTENCE)


def _score(text: str) -> int:
    """Return the highest score of a sentence: the sum of the weights of its signs."""
    sentences = (match[0] for match in _SENTENCE.finditer(text) if _WORD.search(match[0]))
    return max((sum(weight * bool(sign.search(one)) for sign, weight in _SIGNS) for one in sentences), default=0)


def _decoded(code: str) -> str:
    """Return the text that is encoded as base64 or as hexadecimal digits, or nothing."""
    code = code.rstrip("=").replace("-", "+").replace("_", "/")
    try:
        data = bytes.fromhex(code) if _HEX.fullmatch(code) else base64.b64decode(code[: len(code) // 4 * 4])
        return data.decode("ascii")
    except ValueError:
        return ""
