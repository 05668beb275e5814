/* SPDX-License-Identifier: Apache-2.0 */

/* See later.h. */

#include "service/later.h"

#include "base/log.h"
#include "base/os/thread.h"

enum { LATER_COST = 64 << 10 }; /* bytes of the thread and the record */

int later_count(struct later *later, size_t bytes, struct err *err)
{
    purse_open(&later->purse, later->state->ledger, later->owner);
    return purse_take(&later->purse, LATER_COST + bytes) ? 0 : state_full(err);
}

void later_free(struct later *later)
{
    purse_close(&later->purse);
    later->free(later);
}

static void *run(void *arg)
{
    struct later *later = arg;
    struct state *state = later->state;
    struct answer *answer = NULL;
    enum run_status status = later->work(later, &answer);
    if (later->record)
        history_finish(later->record, status, answer);
    answer_release(answer);
    history_unref(later->record);
    later_free(later);
    state->background--; /* from now on service_close() may free the state */
    return NULL;
}

int later_start(struct later *later, struct history_run *record, struct err *err)
{
    later->record = record;
    later->state->background++;
    int r = thread_start(NULL, run, later);
    if (r == 0)
        return 0;
    later->state->background--;
    later->record = NULL;
    return err_set(err, ERR_UNAVAILABLE, -r, "the server has no thread left; try again later");
}

void later_log(const struct later *later, const char *what, const struct err *err)
{
    log_event(LOG_WARN, what, "run", history_id(later->record), "code",
        err_table[err->code].name, "reason", err->message, (char *)NULL);
}
