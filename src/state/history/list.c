/* SPDX-License-Identifier: Apache-2.0 */

/* See history.h. Lists of runs. Unfinished runs are always in memory; finished ones are in
 * memory, in the store, or in both. Memory comes first, because it knows the present status. */

#include "state/history/internal.h"

#include "base/clock.h"

int history_list(
    struct history *history, struct run_query *query, struct run_list *list, struct err *err)
{
    const struct history_options *o = &history->options;
    query->expired_ms = clock_wall_ms() - (int64_t)o->ttl_ms;
    (void)pthread_mutex_lock(&history->lock);
    for (const struct history_run *run = history->newest; run; run = run->older) {
        struct run_row row = stored_row(run, run->status);
        if (!run->is_over)
            row.finished_ms = 0;
        run_list_offer(list, query, &row);
    }
    (void)pthread_mutex_unlock(&history->lock);
    return o->store ? run_store_list(o->store, query, list, err) : 0;
}
