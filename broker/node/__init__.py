"""What runs on a rented node: the agent, the dead-man switch and the probe. Standard library only; imports `broker.wire`.

agent.py        the beat loop: says what is true, does what the directive wants
job.py          one job on this node: prepare, restore, start, stop; runner.py starts and signals its processes
checkpoints.py  recognises complete checkpoints; set_aside.py clears the way before a start;
                snapshot.py freezes one; committer.py commits it while training goes on
notices.py      the cloud's announcement of the end; lease.py the run lease and the dead-man switch
probe/          the GPU check
bundle.py       (on the daemon) packs all of this into one file and writes the user-data that boots it
"""
