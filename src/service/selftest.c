/* SPDX-License-Identifier: Apache-2.0 */

/* See selftest.h. */

#include "service/selftest.h"

#include "attack/run.h"
#include "base/alloc.h"
#include "base/str.h"
#include "service/service.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

struct selftest {
    struct state *state;
    int owner;
    struct attack_cases cases;
    struct attack_bench bench;
    bool *is_wanted; /* for each case */
    size_t wanted;
    size_t next; /* index of the next case */
    enum { STEP_START, STEP_CASES, STEP_OVER } step;
    int tally[ATTACK_SKIPPED + 1];
};

/* The run function of the bench: the way of every run. */
static int run_admitted(const struct attack_bench *bench, struct run_spec *spec,
    const struct run_watch *watch, struct run_result *result, struct err *err)
{
    const struct selftest *s = bench->context;
    const struct service_call call = {.spec = spec, .owner = s->owner, .watch = watch};
    if (!result->id[0])
        id_make("run_", result->id);
    return service_run(s->state, &call, result, err);
}

static int select_cases(struct selftest *s, const json_t *ids, struct err *err)
{
    s->is_wanted = xcalloc(s->cases.count + 1, sizeof(*s->is_wanted));
    for (size_t i = 0; !ids && i < s->cases.count; i++)
        s->is_wanted[i] = true;
    for (size_t k = 0; k < json_array_size(ids); k++) {
        const char *id = json_string_value(json_array_get(ids, k));
        bool is_known = false;
        for (size_t i = 0; i < s->cases.count; i++) {
            bool fits = str_glob_match(id, s->cases.items[i].id);
            s->is_wanted[i] = s->is_wanted[i] || fits;
            is_known = is_known || fits;
        }
        if (!is_known)
            return err_field(err, "ids", "there is no case `%.64s`", id);
    }
    for (size_t i = 0; i < s->cases.count; i++)
        s->wanted += s->is_wanted[i];
    return 0;
}

static int open_bench(struct selftest *s, const json_t *ids, int cancel_fd, struct err *err)
{
    struct state *state = s->state;
    if (!state->cases_dir)
        return err_set(
            err, ERR_UNSUPPORTED, ENOENT, "the attack cases are not installed on this host");
    int r = attack_cases_load(&s->cases, state->cases_dir, err);
    if (r < 0)
        return r;
    s->bench = (struct attack_bench){.engine = state->engine,
        .runtimes = &state->runtimes,
        .cases = &s->cases,
        .run = run_admitted,
        .context = s,
        .cancel_fd = cancel_fd};
    attack_load_victim(&s->bench);
    return select_cases(s, ids, err);
}

int selftest_open(struct state *state, int owner, const json_t *ids, int cancel_fd,
    struct selftest **ret, struct err *err)
{
    bool is_free = false;
    if (!atomic_compare_exchange_strong(&state->is_attacked, &is_free, true))
        return err_set(
            err, ERR_CONFLICT, EBUSY, "a selftest is running; try again when it is over");
    struct selftest *s = xcalloc(1, sizeof(*s));
    s->state = state;
    s->owner = owner;
    int r = open_bench(s, ids, cancel_fd, err);
    if (r < 0) {
        selftest_close(s);
        return r;
    }
    *ret = s;
    return 0;
}

void selftest_close(struct selftest *s)
{
    if (!s)
        return;
    attack_cases_done(&s->cases);
    free(s->bench.victim);
    free(s->is_wanted);
    s->state->is_attacked = false;
    free(s);
}

/* Runs one case. A case that the server had no room for, or forbids, says nothing about the
 * boxes. */
static json_t *run_case(struct selftest *s, const struct attack_case *c)
{
    struct attack_outcome out;
    attack_run(&s->bench, c, false, &out);
    if (out.refusal == ERR_BUSY || out.refusal == ERR_UNAVAILABLE || out.refusal == ERR_INVALID)
        out.verdict = ATTACK_SKIPPED;
    s->tally[out.verdict]++;
    return out.cancelled ? NULL : attack_json(c, false, &out);
}

static json_t *summary(const struct selftest *s)
{
    return json_pack("{s:i, s:i, s:i}", "passed", s->tally[ATTACK_PASSED], "failed",
        s->tally[ATTACK_FAILED], "skipped", s->tally[ATTACK_SKIPPED]);
}

/* Measures the host first. When that fails, the cases say why. */
static json_t *start(struct selftest *s)
{
    struct err ignored = {0};
    (void)attack_calibrate(&s->bench, &ignored);
    return json_pack("{s:I}", "cases", (json_int_t)s->wanted);
}

int selftest_next(struct selftest *s, const char **ret_name, json_t **ret_data)
{
    switch (s->step) {
    case STEP_START:
        *ret_name = "start";
        *ret_data = start(s);
        s->step = STEP_CASES;
        return 1;
    case STEP_CASES:
        while (s->next < s->cases.count && !s->is_wanted[s->next])
            s->next++;
        if (s->next < s->cases.count) {
            *ret_name = "case";
            *ret_data = run_case(s, &s->cases.items[s->next++]);
            return *ret_data ? 1 : -ECANCELED;
        }
        *ret_name = "end";
        *ret_data = summary(s);
        s->step = STEP_OVER;
        return 1;
    default:
        return 0;
    }
}
