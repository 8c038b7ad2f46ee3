"""The fixed run of a head, and how far two runs are apart."""

import torch

from options import ROWS, ROWS_AGAIN, STEPS, STEPS_AGAIN, TARGET_LAYERS
from model import final_norm


def states(o, target, rows):
    """What the target supplies for these rows: its taps side by side, or its final norm."""
    streams = target["streams"][rows]
    if o.version == 1 or o.final:
        return final_norm(target, streams[:, TARGET_LAYERS])
    return torch.cat([streams[:, k] for k in o.taps], -1).double()


def steps(head, ids, logits, hidden, count):
    """Recurrent steps: the greedy draft token and the output before it."""
    drafts, rows, outputs = [], [], []
    for _ in range(count):
        drafts.append(ids[logits.argmax()].reshape(1))
        logits, hidden = (x[-1] for x in head.rows(drafts[-1], hidden[None]))
        rows.append(logits)
        outputs.append(hidden)
    return torch.cat(drafts), torch.stack(rows), torch.stack(outputs)


def again_tokens(drafts, ids, logits):
    """After a verdict that accepts two drafts: those, and the second best in place of the third."""
    return torch.cat([drafts[:2], ids[logits.topk(2).indices[1]].reshape(1)])


def run(head, o, ids, target):
    """All right values of a head."""
    out = {}
    first, later = slice(0, ROWS), slice(ROWS, ROWS + ROWS_AGAIN)
    logits, hidden = head.rows(target["tokens"][1:], head.fuse(states(o, target, first)))
    out["extend.logits"], out["extend.hidden"] = logits, hidden
    tokens, out["steps.logits"], out["steps.hidden"] = steps(head, ids, logits[-1], hidden[-1], STEPS)
    out["steps.tokens"] = tokens
    head.keep(ROWS)
    again = again_tokens(tokens, ids, out["steps.logits"][1])
    logits, hidden = head.rows(again, head.fuse(states(o, target, later)))
    out["again.tokens"], out["again.logits"], out["again.hidden"] = again, logits, hidden
    more = steps(head, ids, logits[-1], hidden[-1], STEPS_AGAIN)
    out["again.steps.tokens"], out["again.steps.logits"], out["again.steps.hidden"] = more
    return out


def margin(values):
    """Least distance between the best and the second best logit where a step chose."""
    chose = [values["extend.logits"][-1], *values["steps.logits"], values["again.logits"][-1], *values["again.steps.logits"]]
    best = [row.topk(2).values for row in chose]
    return min(float(first - second) for first, second in best)


def difference(a, b, names=None):
    names = names or [name for name in a if not name.endswith("tokens")]
    return max(float((a[name].double() - b[name].double()).abs().max()) for name in names)
