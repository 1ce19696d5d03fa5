"""CPU time that telling of a fit costs.

In its own thread, on the client's loop and the scheduler, while looked at.

They are times of the processor, so that other programs on the machine matter little.
"""

import json
import time

from distributed import Client, LocalCluster

from schmp_estimators.core.dashboard.fits import EVERY, Fits, Teller
from schmp_estimators.core.dashboard.page import View

RECORD = {
    "seconds": 1.0,
    "samples": 10**6,
    "log_likelihood": -1e6,
    "moved": 1000,
    "doc_topic_prior": 0.1,
}
N_TOLD, N_MESSAGES, N_RECORDS, N_LOOKS = 20_000, 400, 10, 200


def cpu(action, times):
    began = time.process_time()
    for _ in range(times):
        action()
    return (time.process_time() - began) / times


def main():
    options = {
        "n_workers": 4,
        "threads_per_worker": 1,
        "processes": False,
        "dashboard_address": ":0",
    }
    with LocalCluster(**options) as cluster, Client(cluster, set_as_default=False) as client:
        idle = cpu(lambda: time.sleep(5), 1) / 5
        teller = Teller(client, "schmp-lda")
        teller.tell("begin", {"estimator": "DistributedLDA", "objective": "log_likelihood"})
        while teller._has_page is None:
            time.sleep(0.05)
        open_and_idle = cpu(lambda: time.sleep(5), 1) / 5
        teller._sending = True  # nothing is sent meanwhile
        began = time.thread_time()
        for number in range(N_TOLD):
            teller.tell("record", {"iterations": number, **RECORD})
        of_tell = (time.thread_time() - began) / N_TOLD
        teller._unsent.clear()

        def send():
            for number in range(N_RECORDS):
                teller.tell("record", {"iterations": number, **RECORD})
            client.sync(teller._send)

        of_message = cpu(send, N_MESSAGES)

        def short_fit():
            one = Teller(client, "schmp-lda")
            one.tell("begin", {"estimator": "DistributedLDA"})
            one.close()

        of_fit = cpu(short_fit, N_MESSAGES)
        view = View(cluster.scheduler)

        def look():
            view._drawn = None
            view.update()

        of_look = cpu(look, N_LOOKS)
        fit = cluster.scheduler.plugins[Fits.name].fits[teller._fit]
        print(
            json.dumps({
                "microseconds in the thread of the fit for a record": round(1e6 * of_tell, 1),
                f"milliseconds of client and scheduler for {N_RECORDS} records": round(
                    1e3 * of_message, 2
                ),
                "milliseconds of both for a fit's beginning and end": round(1e3 * of_fit, 2),
                "percent of one core at the most messages a second": round(
                    100 * of_message / EVERY, 2
                ),
                "percent of one core, idle cluster without and with page": [
                    round(100 * one, 1) for one in (idle, open_and_idle)
                ],
                f"milliseconds for a look, two a second, at {len(fit.points)} points": round(
                    1e3 * of_look, 2
                ),
            }, indent=1)
        )  # fmt: skip
        teller.close()


if __name__ == "__main__":
    main()
