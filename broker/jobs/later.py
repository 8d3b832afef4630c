"""Fields of the final job file that this release does not know how to honour, each with what to do until then.

They are refused at their line: a job that asks for something and silently does not get it has been lied to.
"""

TOP = {
    "version": "leave it out; there is one version",
    "budget": "bound the spending per hour with the policy's limits",
    "image": "install what you need in setup",
    "secrets": "let the job fetch its secrets itself, with a role of its node or a token in env",
    "metrics": "append JSON lines with step, total_steps, epoch and loss to $BROKER_METRICS",
    "notify": "follow GET /api/v1/events",
    "hooks": "put the commands into setup or run",
    "preemptible_by": "choose a lower priority",
}
RESOURCES = {
    "interconnect": "choose form: SXM for NVLink",
    "cpus": "",
    "memory": "for the memory of a GPU, write gpus: {type: ..., memory: 80GiB}",
    "disk": "",
    "cuda": "check it in setup, which fails the landing and not the job",
    "trust": "name the clouds in resources.allow",
}
GPU = {"speed": "the broker measures it; leave it out"}
SOURCE = {"git": "clone the repository in setup"}
DATA = {
    "to": "let the job fetch its data; from and size only price the move",
    "mode": "let the job fetch its data; from and size only price the move",
}
CHECKPOINT = {
    "format": "it is recognised by its files",
    "store": "the operator's checkpoint store is used",
    "on_notice": "the job gets SIGTERM if it handles it",
    "notice_grace": "the cloud's notice is used in full",
    "resume": "the newest commit is restored before every start",
}
KEEP_BEST = {"count": "one is kept"}
STOP = {
    "max_runtime": "use `timeout` in run",
    "max_restarts": "",
    "when": "",
    "kill_when": "",
}
