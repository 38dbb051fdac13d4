"""Words: every notice and every story a person reads is written here, from the records alone.

Called by core (notices), cli/why and the demo. It decides nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from sickbay.catalog import Catalog
from sickbay.core import absence, absence_words, consent, quiet, suspicion
from sickbay.core.moment import how_long, moment
from sickbay.core.naming import named
from sickbay.model import (
    RECOVERY_WORDS,
    Blame,
    Case,
    Diagnosis,
    Doubt,
    Entry,
    Event,
    Fault,
    Finding,
    Notice,
    Phase,
    Recovery,
    Undelivered,
    Verb,
)

PHASE_WORDS: dict[Phase, str] = {
    Phase.SUSPECTED: "under suspicion",
    Phase.WAITING: "waiting for its turn to be taken out",
    Phase.CORDONING: "being closed for new work",
    Phase.HOLDING: "closed for new work; what runs may go on",
    Phase.DRAINING: "being emptied",
    Phase.COLLECTING: "having its evidence collected",
    Phase.QUEUED: "waiting for its treatment",
    Phase.REPAIRING: "being treated",
    Phase.VERIFYING: "being examined",
    Phase.RETURNING: "being returned to service",
    Phase.ESCALATED: "in the hands of a person",
    Phase.CANCELLING: "being let go",
    Phase.RESOLVED: "well, or gone for good",
    Phase.DISMISSED: "let go",
    Phase.DEFERRED: "left for later",
}

LEVELS: dict[Phase, str] = {
    Phase.ESCALATED: "urgent",
    Phase.RESOLVED: "info",
    Phase.DEFERRED: "warning",
    Phase.DISMISSED: "info",
    Phase.CORDONING: "info",
}


def headline(diagnoses: Sequence[Diagnosis], catalog: Catalog) -> str:
    """The worst diagnosis in one clause."""
    if not diagnoses:
        return "nothing is known"
    worst = max(diagnoses, key=lambda d: (d.severity, d.confidence))
    fault = catalog.faults.get(worst.fault)
    where = f" on GPU {worst.place.device}" if worst.place.device else ""
    return (fault.title if fault else worst.fault) + where


def notice_of(case: Case, why: str, catalog: Catalog, at: float) -> Notice | None:
    """The message that entering this phase is worth, if any."""
    level = LEVELS.get(case.phase)
    if level is None or (case.newcomer and case.phase is not Phase.ESCALATED):
        return None
    if case.absence is not None:
        return absence_words.left(case, case.absence, why, at) if case.phase is Phase.DISMISSED else None
    if case.phase is Phase.DISMISSED and not case.ours and quiet.let_go_by_us(case):
        return None  # never marked, and the one case about what many share has told people
    if _is_known(case):
        return None
    what = headline(case.diagnoses, catalog)
    subject = case.factor or case.node
    title = f"{subject}: {what} ({PHASE_WORDS[case.phase]})"
    body = [_stop(f"{subject} is {PHASE_WORDS[case.phase]}: {why}")]
    body += [f"Evidence: {quote}" for d in case.diagnoses for quote in d.because[:1]][:3]
    body += [*_todo(case), *_pardon(case)]
    return Notice(f"{case.id}/{case.step}", level, title, "\n".join(body), case.id, at)


def asks(case: Case, verb: Verb, catalog: Catalog, at: float) -> Notice:
    """The policy says that a person decides about this: here they are asked."""
    body = [
        f"{case.node} is {PHASE_WORDS[case.phase]}: {verb} is next, and policy.approval says that a person decides.",
        *[f"Evidence: {quote}" for d in case.diagnoses for quote in d.because[:1]][:3],
        f"Yes: sickbay case approve {case.id} --verb {verb}. What was tried: sickbay case show {case.id}. To let the "
        f"node go instead: sickbay case abort {case.id}.",
        *_pardon(case),
    ]
    title = f"{case.node}: {headline(case.diagnoses, catalog)} ({verb} waits for your word)"
    return Notice(f"{case.id}/{case.step}/asks/{verb}", "urgent", title, "\n".join(body), case.id, at)


def undelivered(case: Case, known: Undelivered, lasts_s: float, at: float) -> Notice:
    """Nobody has to act: it is said what does not answer, and how to stop the asking."""
    why = case.journal[-1].why
    body = [
        _stop(f"{case.node}: {why}"),
        f"That has been so since {moment(known.at)}, for {how_long(at - known.at)}. Nothing was done to the node; it "
        f"stays closed, and {known.verb} is tried again by itself every ten minutes or sooner. From "
        f"{moment(known.at + lasts_s)} on a person has to decide.",
        f"To stop it: sickbay case hold {case.id} (nothing more is tried), or sickbay case abort {case.id} (the node "
        "is let go).",
    ]
    title = f"{case.node}: {known.verb} cannot be delivered"
    return Notice(f"{case.id}/{case.step}/undelivered", "warning", title, "\n".join(body), case.id, at)


def lacks(case: Case, why: str, catalog: Catalog, at: float) -> Notice:
    """A release that only lacks a right, an examination that is not let in: whoever can change that is told what."""
    short, until = "a right is missing to open it", "that right is back"
    if case.phase is Phase.VERIFYING:
        short, until = "it cannot be examined", "it is let in"
    body = [
        _stop(f"{case.node} is {PHASE_WORDS[case.phase]} and stays closed: {why}"),
        f"It is asked for again every minute, and goes on by itself as soon as {until}: sickbay case show {case.id}.",
    ]
    title = f"{case.node}: {headline(case.diagnoses, catalog)} ({short})"
    return asked_again(Notice(f"{case.id}/{case.step}/lacks", "urgent", title, "\n".join(body), case.id, at), case)


ASKED_AGAIN = "asked-again/"  # in Notice.alike, before the verb
REFUSED_WORDS = {
    Verb.CORDON: "cannot be closed for new work",
    Verb.DRAIN: "cannot be emptied",
    Verb.VERIFY: "cannot be examined",
    Verb.RELEASE: "cannot be opened again",
}


CAME_SICK = "came-sick/"  # in Notice.alike, before the pool


def came_sick(notice: Notice, case: Case, *, known: bool) -> Notice:
    """A pool that gets nothing but sick machines is one thing to ask a provider about. `known`: another one rests with
    a person over it, so they were told."""
    return replace(notice, alike=f"{CAME_SICK}{case.pool}", level="warning" if known else notice.level)


def asked_again(notice: Notice, case: Case) -> Notice:
    """What is refused and asked for again is refused on many nodes at once, mostly for one missing right: that is one
    thing to mend, and one message."""
    verb = case.pending.verb if case.pending is not None else None
    return replace(notice, alike=f"{ASKED_AGAIN}{verb}") if verb in REFUSED_WORDS else notice


def _is_known(case: Case) -> bool:
    """Closed once more in the same case, or gone by itself before anybody was told of it: nobody has to know."""
    if case.phase is Phase.CORDONING:
        return sum(phase == Phase.CORDONING for phase, _ in case.timeline) > 1
    gone = bool(case.journal) and case.journal[-1].event == Event.CLEARED
    return case.phase is Phase.DISMISSED and gone and not case.ours


def about(case: Case, title: str, why: str, level: str, at: float) -> Notice:
    """Something about a case that no phase says."""
    return Notice(f"{case.id}/{case.step}/{level}", level, title, _stop(why), case.id, at)


def with_quiet(notice: Notice, case: Case, until: float) -> Notice:
    """Nobody shall wonder why the same fault is only noted from now on. `until`: wall time, as well as it is known."""
    faults = ", ".join(dict.fromkeys(d.fault for d in case.diagnoses))
    words = (
        f"Until {moment(until)} no new case opens for {faults} on {case.node}, unless it shows on another boot or "
        f"another device. To take it up before that: sickbay case reopen {case.node}."
    )
    return replace(notice, body=f"{notice.body}\n{words}")


def _todo(case: Case) -> list[str]:
    if case.phase is Phase.CORDONING and absence.is_only_evidence(case):
        return ["When it answers again it is examined, and returned by itself if it is well."]
    if case.phase is Phase.ESCALATED and case.factor:
        return [f"No node is treated for this. When the cause is dealt with: sickbay case abort {case.id}."]
    if case.phase is Phase.ESCALATED and case.pending is not None:
        return [
            "It is asked for again every minute, and goes on by itself as soon as that works. Or decide: "
            f"sickbay case show {case.id}, then sickbay case retry {case.id}, examine or abort."
        ]
    if (verb := consent.asked(case)) is not None and consent.waited_in_vain(case):
        return [
            f"Yes: sickbay case approve {case.id} --verb {verb} takes it up again where it stood. What was tried: "
            f"sickbay case show {case.id}. Or sickbay case examine {case.id} (verify only) or abort (let it go)."
        ]
    if case.phase is Phase.ESCALATED:
        return [
            f"Nothing more is done until a person decides: sickbay case show {case.id}, then "
            f"sickbay case retry {case.id} (treat again), examine (verify only) or abort (let it go)."
        ]
    return []


def _pardon(case: Case) -> list[str]:
    """Nothing else ends that verdict: what is let go of is closed again at the next look."""
    if not any(d.code == "monitor.condemned-part" for d in case.diagnoses):
        return []
    return [
        f"If that GPU is good: sickbay node acknowledge {case.node} lifts its verdict for good, then "
        f"sickbay case examine {case.id} or abort."
    ]


def remark(finding: Finding, fault: Fault | None, at: float) -> Notice:
    """An instrument that is sick, a code we do not know: no disruption, one message."""
    node = finding.place.node
    title = f"{node}: {fault.title if fault else finding.code or finding.check}"
    body = [_stop(finding.reason) + " The node stays in service."]
    body += [f"Evidence: {line}" for line in finding.evidence[:2]]
    if fault is not None and fault.advice:
        body.append(fault.advice)
    key = f"{node}/{finding.boot_id}/{finding.code}/{int(at // 86_400)}"  # told again after a day: a notice of its own
    return Notice(key, "warning", title, "\n".join(body), "", at, alike=f"remark/{finding.code or finding.check}")


def alike(remarks: Sequence[Notice]) -> Notice:
    """Of the same kind about many nodes: one message, under the first one's key."""
    first = remarks[0]
    names = list(dict.fromkeys(remark.title.partition(": ")[0] for remark in remarks))
    if len(names) == 1:
        return first
    if short := _short(first.alike):
        return _many_cases(remarks, names, short)
    body = f"{len(names)} nodes show it and stay in service: {named(names)}.\nOf {names[0]}: {first.body}"
    return replace(first, title=f"{len(names)} nodes: {first.title.partition(': ')[2]}", body=body)


def _short(word: str) -> str:
    """What many cases have in common, where it is no remark."""
    if word.startswith(ASKED_AGAIN):
        return REFUSED_WORDS[Verb(word.removeprefix(ASKED_AGAIN))]
    return f"came sick to pool {word.removeprefix(CAME_SICK)}" if word.startswith(CAME_SICK) else ""


MOST_WHYS = 3  # different reasons that are quoted


def _many_cases(notices: Sequence[Notice], names: Sequence[str], short: str) -> Notice:
    """The words of a door name the right that is missing, and say what to do."""
    first, whys = notices[0], dict[str, str]()
    for notice in notices:
        said = notice.body.partition("\n")[0]
        whys.setdefault(said.replace(notice.title.partition(": ")[0], ""), said)
    body = [
        f"{len(names)} nodes {short}. Their cases: {named([notice.case for notice in notices])}.",
        *list(whys.values())[:MOST_WHYS],
        first.body.partition("\n")[2],
    ]
    return replace(first, title=f"{len(names)} nodes {short}", body="\n".join(body), case="")


def doubted(node: str, doubt: Doubt, at: float) -> Notice:
    """A part came back ill: it is used last from now on, and this is how that ends."""
    what, hours = suspicion.name(doubt.part, node), suspicion.GOOD_S / 3600
    body = (
        f"{what} is under suspicion: {doubt.why}. The node serves, but managed jobs take it last, and a gang above "
        f"{suspicion.SMALL_GANG} nodes takes one such node at most while it has not waited for long. The suspicion "
        f"fades with every hour in which a job makes steps on it and ends after {hours:.0f}. If you know better: "
        f"sickbay node acknowledge {node}."
    )
    return Notice(f"{node}/doubt/{doubt.part}/{int(at)}", "warning", f"{what}: under suspicion", body, "", at)


def silence(pool: str, nodes: Sequence[str], key: str, at: float) -> Notice:
    """Many instruments silent at once: one message about instruments."""
    body = (
        f"{len(nodes)} nodes of pool {pool} give no answer to our checks: {named(nodes, 8)}. "
        "No node is touched for that. Look at what they share: a roll-out of the driver, of DCGM or of the agent."
    )
    return Notice(key, "warning", f"pool {pool}: instruments are silent", body, "", at)


def case_story(case: Case) -> list[str]:
    """The life of a case in sentences, oldest first, each with its time."""
    lines = [_timed(entry, _sentence(_signed(entry), case.node)) for entry in case.journal if entry.why]
    last = f"{case.factor or case.node} is {PHASE_WORDS[case.phase]}"
    lines.append(_stop(last + (f": {case.refusal}" if case.refusal else "")))
    return lines


def _timed(entry: Entry, words: str) -> str:
    return f"{moment(entry.at)} {words}"


def _sentence(text: str, name: str = "") -> str:
    """With a capital, unless it begins with this name, and one full stop."""
    return _stop(text if name and text.startswith(name) else text[:1].upper() + text[1:])


def _stop(text: str) -> str:
    return text.strip().rstrip(".") + "."


def _signed(entry: Entry) -> str:
    own = entry.by in ("", "sickbay", "platform")
    return entry.why if own else f"{entry.why.rstrip('.')} (said {entry.by})"


def recovery_story(recovery: Recovery) -> list[str]:
    lines = [_timed(entry, _sentence(entry.why, recovery.job)) for entry in recovery.journal if entry.why]
    last = f"{recovery.job} is {RECOVERY_WORDS[recovery.phase]}"
    lines.append(_stop(last + (f": {recovery.refusal}" if recovery.refusal else "")))
    return lines


BLAME_WORDS = {
    Blame.HARDWARE: "the hardware failed",
    Blame.INFRASTRUCTURE: "the infrastructure under it failed",
    Blame.USER_CODE: "its own program failed; no node is to blame",
    Blame.UNKNOWN: "nothing explains it",
}


def restarted(recovery: Recovery, lost_s: float, at: float) -> Notice:
    """The one message an owner gets: which node, why, steps lost, resumed at."""
    blame = BLAME_WORDS[recovery.blame or Blame.UNKNOWN]
    nodes = f" ({', '.join(recovery.suspects)})" if recovery.suspects else ""
    body = [
        f"{recovery.job} was interrupted because {blame}{nodes}.",
        *(f"Evidence: {quote}" for quote in recovery.because[:2]),
        _resumed(recovery, how_long(lost_s)),
    ]
    return Notice(f"{recovery.job}/{recovery.step}", "info", f"{recovery.job} runs again", "\n".join(body), "", at)


def _resumed(recovery: Recovery, lost: str) -> str:
    again = f"It runs again as attempt {recovery.attempt}"
    if not tells_steps(recovery):
        was = "was" if lost.startswith("1 ") else "were"
        return f"{again}; {lost} {was} lost. It tells no steps: how many are made again is not known."
    steps = "1 step" if recovery.lost_steps == 1 else f"{recovery.lost_steps} steps"
    return f"{again} from step {max(0, recovery.checkpoint_step)}: {steps} and {lost} were lost."


def tells_steps(recovery: Recovery) -> bool:
    """A job that tells none stands at 1 while it runs (a platform's way to say that it does), and never saves."""
    return recovery.checkpoint_step >= 0 or recovery.job_step > 1


def gave_up(recovery: Recovery, why: str, at: float) -> Notice:
    body = [_stop(f"{recovery.job} is not restarted: {why}")]
    body += [f"Evidence: {quote}" for quote in recovery.because[:3]]
    return Notice(f"{recovery.job}/{recovery.step}", "urgent", f"{recovery.job} has stopped", "\n".join(body), "", at)


def waits(recovery: Recovery, why: str, at: float) -> Notice:
    """Told once a day while it lasts: the day is in the key."""
    body = f"{recovery.job} is stopped and waits for nodes: {why}. It goes on by itself as soon as that has changed."
    key = f"{recovery.job}/waits/{int(at // 86_400)}"
    return Notice(key, "warning", f"{recovery.job} waits for capacity", body, "", at)


def renumbered(recovery: Recovery, shown: int, at: float) -> Notice:
    job, attempt = recovery.job, recovery.attempt
    body = (
        f"Somebody has changed or removed the number of its attempt: {job} says that it is attempt {shown}, and it is "
        f"attempt {attempt}. It is looked after as attempt {attempt}, and the next one will be attempt {attempt + 1}. "
        "Nothing need be done; leave the number to Sickbay."
    )
    return Notice(f"{job}/{attempt}/shown-as-{shown}", "info", f"{job} has lost its number", body, "", at)


def does_not_begin(recovery: Recovery, why: str, at: float) -> Notice:
    """Told once a day while it lasts: the day is in the key."""
    job = recovery.job
    body = (
        f"{job} does not begin: {why}. It is tried again by itself, later and later. Look at what it shares with "
        f"others: registry, storage, fabric, subnet manager. When that is mended: sickbay job restart {job} (it need "
        "not wait for its next try). If its own program hangs, suspend or delete it."
    )
    return Notice(f"{job}/again/{int(at // 86_400)}", "warning", f"{job} does not begin", body, "", at)


def no_arrivals(recovery: Recovery, at: float) -> Notice:
    body = (
        f"{recovery.job} is stopped: nodes for it are made on demand, and {recovery.arrivals} in a row came sick or "
        "did not come. No more are asked for until jobs.capacity_s has passed; it goes on before that as soon as there "
        "are enough good nodes. Look at whoever makes the nodes: limits, capacity, images."
    )
    key = f"{recovery.job}/arrivals/{recovery.attempt}"
    return Notice(key, "urgent", f"{recovery.job} gets no good nodes", body, "", at)


UNDELIVERED = "its stop cannot be delivered"  # nobody knows whether its ranks would end


def cannot_stop(recovery: Recovery, why: str, at: float) -> Notice:
    """Once a day while it lasts."""
    look = "" if why.startswith(UNDELIVERED) else " Look for processes that do not end on its nodes."
    body = f"{recovery.job} cannot be restarted yet: {why}.{look}"
    key = f"{recovery.job}/stopping/{int(at // 86_400)}"
    return Notice(key, "warning", f"{recovery.job} does not stop", body, "", at)


# What stands still while it is left alone because of an error of ours, by what raised.
LEFT_ALONE = {
    "node": "Nothing is written or done about {name}; all other nodes are attended. Until it is, close it by hand "
    "(kubectl cordon, or what your scheduler has) if it must take no work.",
    "job": "Nothing is written or done about {name}; all other jobs are attended. Until it is, stop or restart it by "
    "hand.",
    "command": "It is left where it is and not obeyed; the node is attended as if it had not been said.",
    "the ledger of limits": "No node is taken out of service or treated until it works again; what is seen goes on "
    "being seen.",
    "admission to treatment": "No node is taken out of service or treated until it works again; what is seen goes on "
    "being seen and written down.",
}
AS_A_RULE = "The rest of each pass goes on without it."


def unattended(kind: str, name: str, why: str, key: str, at: float) -> Notice:
    """An error of ours about one node, job, command or rule."""
    what = {"node": "{}", "job": "{}", "rule": "the rule about {}"}.get(kind, kind + " {}").format(name)
    again = "" if kind == "command" else "It is tried again after seconds, later every ten minutes. "
    body = [
        _stop(f"Sickbay met an error of its own with {what}: {why}"),
        LEFT_ALONE.get(name if kind == "rule" else kind, AS_A_RULE).format(name=name),
        f"{again}This is a bug or a damaged record: the controller's log has the traceback. Please report it.",
    ]
    state = "is not attended" if kind in ("node", "job") else "is set aside"
    return Notice(key, "urgent", f"{what} {state}: an internal error", "\n".join(body), "", at)


def many_unattended(kind: str, names: Sequence[str], why: str, key: str, at: float) -> Notice:
    """The same error with many: one message."""
    body = [
        _stop(f"Sickbay met an error of its own with {named(names)}: {why}"),
        "Nothing is written or done about them. They are tried again after seconds, later every ten minutes. This is a "
        "bug: the controller's log has the traceback. Please report it.",
    ]
    return Notice(key, "urgent", f"{len(names)} {kind}s are not attended: an internal error", "\n".join(body), "", at)


def store_fails(why: str, since: float) -> Notice:
    """The records cannot be written. `since` makes it one message for each time that this happens."""
    body = [
        _stop(f"Since {moment(since)} Sickbay cannot read or write its records: {why}"),
        "Until it can, nothing is decided or done: no node is closed, treated or returned, and no job is restarted. "
        "What was sent already runs to its end.",
        "It tries again every few seconds and goes on by itself. `sickbay nodes` says when it last noted a pass.",
    ]
    return Notice(f"store/{int(since)}", "urgent", "Sickbay cannot write its records", "\n".join(body), "", since)
