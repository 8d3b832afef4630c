"""A small transformer that learns to continue a pattern: the job of the rehearsal, and a model for your own.

It knows nothing of the broker but four environment variables, all optional:

    BROKER_CHECKPOINT_DIR   where to save; the agent watches it and uploads what is complete
    BROKER_RESUME_FROM      the checkpoint to go on from, or empty
    BROKER_METRICS          append one JSON object a line: step, total_steps, loss
    STEP_SECONDS            least duration of a step, so that a rehearsal lasts; 0 trains as fast as it can

Everything that the result depends on is in the checkpoint: model, optimiser, step and random state. One thread and
deterministic kernels make the final weights the same bits, however often the training was interrupted.
"""

import argparse
import hashlib
import json
import os
import signal
import time
from pathlib import Path

import torch
from torch import nn

VOCABULARY, CONTEXT, WIDTH = 32, 48, 48
STOP = False


def ask_to_stop(signum: int, frame: object) -> None:
    """The cloud or the broker wants the node back: finish the step, save, leave."""
    global STOP
    STOP = True


class Model(nn.Module):
    """Two transformer layers over a tiny alphabet."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(VOCABULARY, WIDTH)
        self.place = nn.Parameter(torch.zeros(CONTEXT, WIDTH))
        layer = nn.TransformerEncoderLayer(WIDTH, 4, 4 * WIDTH, dropout=0.1, batch_first=True)
        self.layers = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.head = nn.Linear(WIDTH, VOCABULARY)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """(batch, CONTEXT) token ids to (batch, CONTEXT, VOCABULARY) scores."""
        mask = nn.Transformer.generate_square_subsequent_mask(tokens.shape[1])
        return self.head(self.layers(self.embed(tokens) + self.place, mask=mask, is_causal=True))


def batch() -> tuple[torch.Tensor, torch.Tensor]:
    """Arithmetic progressions modulo the alphabet, drawn from the global generator (its state is saved too)."""
    start = torch.randint(VOCABULARY, (16, 1))
    stride = torch.randint(1, 5, (16, 1))
    line = (start + stride * torch.arange(CONTEXT + 1)) % VOCABULARY
    return line[:, :-1], line[:, 1:]


def save(folder: Path, step: int, model: nn.Module, optimiser: torch.optim.Optimizer) -> None:
    """Write beside, then rename: a checkpoint that can be seen is whole."""
    state = {
        "step": step,
        "model": model.state_dict(),
        "optimiser": optimiser.state_dict(),
        "rng": torch.get_rng_state(),
    }
    target = folder / f"step-{step:06d}.pt"
    beside = folder / f".{target.name}.tmp"
    torch.save(state, beside)
    os.replace(beside, target)
    for old in sorted(folder.glob("step-*.pt"))[:-3]:
        old.unlink()


def digest(model: nn.Module) -> str:
    """SHA-256 over every weight's name and bytes."""
    total = hashlib.sha256()
    for name, value in sorted(model.state_dict().items()):
        total.update(name.encode())
        total.update(bytes(value.contiguous().view(torch.uint8).flatten().tolist()))
    return total.hexdigest()


def report(**values: object) -> None:
    """One line for people, one for the broker."""
    print(json.dumps(values), flush=True)
    if path := os.environ.get("BROKER_METRICS"):
        with open(path, "a", encoding="utf-8") as lines:
            lines.write(json.dumps(values) + "\n")


def main() -> None:
    """Train to the end, or until asked to stop."""
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--steps", type=int, default=400)
    arguments.add_argument("--save-every", type=int, default=20)
    arguments.add_argument(
        "--checkpoints", type=Path, default=Path(os.environ.get("BROKER_CHECKPOINT_DIR", "checkpoints"))
    )
    options = arguments.parse_args()

    signal.signal(signal.SIGTERM, ask_to_stop)
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    torch.manual_seed(7)
    options.checkpoints.mkdir(parents=True, exist_ok=True)
    model = Model()
    optimiser = torch.optim.AdamW(model.parameters(), lr=2e-3)
    step = 0
    if resume := os.environ.get("BROKER_RESUME_FROM"):
        state = torch.load(resume, weights_only=True)
        model.load_state_dict(state["model"])
        optimiser.load_state_dict(state["optimiser"])
        torch.set_rng_state(state["rng"])
        step = state["step"]
        print(f"resumed at step {step} from {Path(resume).name}", flush=True)

    pace = float(os.environ.get("STEP_SECONDS", "0"))
    while step < options.steps and not STOP:
        began = time.monotonic()
        tokens, wanted = batch()
        loss = nn.functional.cross_entropy(model(tokens).flatten(0, 1), wanted.flatten())
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        step += 1
        if step % 5 == 0 or step == options.steps:
            report(step=step, total_steps=options.steps, loss=round(loss.item(), 6))
        if step % options.save_every == 0 or step == options.steps:
            save(options.checkpoints, step, model, optimiser)
        time.sleep(max(0.0, pace - (time.monotonic() - began)))
    if STOP and step < options.steps:
        save(options.checkpoints, step, model, optimiser)
        print(f"asked to stop: saved step {step}", flush=True)
        raise SystemExit(143)
    print(f"final weights sha256 {digest(model)}", flush=True)


if __name__ == "__main__":
    main()
