/* SPDX-License-Identifier: Apache-2.0 */

/* See calibrate.h. A variable that begins with LC_ makes a run cold (run/warmth.c). */

#include "service/calibrate.h"

#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "run/engine_state.h"

#include <stdlib.h>
#include <time.h>

/* Runs for a median; milliseconds until it gives up; first pause after a run that was not
 * served as wanted; longest nap between two checks of *stop. */
enum { ROUNDS = 5, PATIENCE_MS = 30000, PAUSE_MS = 50, NAP_MS = 10 };

/* The peak of an empty program; false when the run was not warm or cold as wanted. */
static bool measure(
    struct engine *e, const struct runtime *rt, bool want_warm, uint64_t *ret_peak_kb)
{
    CLEANUP(run_spec_done) struct run_spec spec;
    CLEANUP(run_result_done) struct run_result result;
    struct err err = {0};
    run_spec_init(&spec);
    run_result_init(&result, 4096);
    spec.runtime = rt;
    run_files_add(&spec.files, rt->main_file, xstrdup("\n"), 1, false);
    if (!want_warm)
        strv_add(&spec.env, "LC_HERMES=cold");
    CLEANUP(run_plan_done) struct run_plan plan = {0};
    if (run_plan_make(&spec, &e->maxima, &plan, &err) < 0 ||
        engine_run(e, &plan, NULL, &result, &err) < 0 || result.run.status != RUN_OK ||
        result.run.is_warm != want_warm)
        return false;
    *ret_peak_kb = result.run.usage.memory_peak_kb;
    return true;
}

static int compare(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a;
    uint64_t y = *(const uint64_t *)b;
    return x < y ? -1 : x > y;
}

static void pause_until(uint64_t until_ms, const atomic_bool *stop)
{
    while (clock_ms() < until_ms && !*stop)
        (void)nanosleep(&(struct timespec){.tv_nsec = NAP_MS * 1000000L}, NULL);
}

/* The median of ROUNDS runs; false when the zygote does not start. The pauses double: if it
 * never starts, each attempt is a wasted run. */
static bool median(struct engine *e, const struct runtime *rt, bool warm,
    const atomic_bool *stop, uint64_t *ret)
{
    uint64_t peaks[ROUNDS] = {0};
    unsigned count = 0;
    uint64_t pause_ms = PAUSE_MS;
    uint64_t deadline_ms = clock_ms() + PATIENCE_MS;
    while (count < ROUNDS && clock_ms() < deadline_ms && !*stop) {
        if (measure(e, rt, warm, &peaks[count])) {
            count++;
        } else {
            uint64_t until_ms = clock_ms() + pause_ms;
            pause_until(until_ms < deadline_ms ? until_ms : deadline_ms, stop);
            pause_ms *= 2;
        }
    }
    qsort(peaks, count, sizeof(peaks[0]), compare);
    *ret = count ? peaks[count / 2] : 0;
    return count == ROUNDS;
}

void calibrate_warm(struct engine *e, const atomic_bool *stop)
{
    for (size_t i = 0; i < e->runtimes->count; i++) {
        const struct runtime *rt = &e->runtimes->items[i];
        uint64_t warm, cold;
        if (rt->available && rt->run.warm.count && median(e, rt, true, stop, &warm) &&
            median(e, rt, false, stop, &cold) && cold > warm)
            e->warm_base_kb[i] = cold - warm;
    }
}
