"""The client's end of ``bench.outside``: a request a line, an answer a line. Standard library only."""

import gc
import json
import os
import sys
import time
import traceback


def serve(actions):
    """Answer until standard input ends. What libraries print goes to standard error."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    for line in sys.stdin:
        request = json.loads(line)
        try:
            answer = {"answer": actions[request["do"]](**request["with"])}
        except Exception as error:  # noqa: BLE001 - told to the other end
            traceback.print_exc()
            answer = {"error": f"{type(error).__name__}: {error}"}
        print(json.dumps(answer), file=answers, flush=True)


def cpu(work):
    """CPU seconds of one call, over all threads of this process, and what it returned."""
    gc.collect()
    begun = time.process_time()
    result = work()
    return time.process_time() - begun, result
