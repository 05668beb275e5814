/* SPDX-License-Identifier: Apache-2.0 */

/* See run.h. A case passes when its status is one that the header allows and there is no sign
 * of a breach: no line BREACH, no canary token in any answer, no canary touched, and a victim
 * that went on counting. */

#include "attack/run.h"

#include "attack/victim.h"
#include "base/alloc.h"
#include "base/buf.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/os/fs.h"
#include "base/str.h"
#include "base/utf8.h"

#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum {
    /* Allowed delay of a run's end, on a host that starts a box within QUICK_MS. */
    SLACK_MS = 1000,
    ZYGOTE_MS = 20000, /* for the first warm box */
    QUICK_MS = 50,     /* a box that starts slower raises the allowed delay */
    /* CPU time of a shell that prints one word; more means a slow processor. */
    QUICK_CPU_MS = 10,
    MAX_TIME_SCALE = 8,       /* bound of attack_bench.time_scale */
    FILE_MAX_BYTES = 1 << 20, /* most bytes of a source or of an output */
    VICTIM_MAX_BYTES = 64 << 10,
};

/* A case in progress. */
struct attack {
    const struct attack_bench *bench;
    const struct attack_case *c;
    bool control;
    struct canary canary;
    struct victim *victim;
    char *differ[2]; /* lines of the first and the second box */
    struct attack_outcome *out;
};

/* Records the first failure only. The text may contain a probe's output, so non-printable bytes
 * become dots. */
static void fail(struct attack *a, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
static void fail(struct attack *a, const char *fmt, ...)
{
    struct attack_outcome *out = a->out;
    if (out->verdict == ATTACK_FAILED)
        return;
    out->verdict = ATTACK_FAILED;
    va_list args;
    va_start(args, fmt);
    (void)vsnprintf(out->why, sizeof(out->why), fmt, args);
    va_end(args);
    for (char *p = out->why; *p; p++) {
        if (*p < ' ' || *p > '~')
            *p = '.';
    }
}

/* Finds a line that begins with prefix (`whole`: that equals it). NULL when there is none. The
 * caller frees it. */
static char *find_line(const struct buf *text, const char *prefix, bool whole)
{
    const char *at = text->data;
    const char *end = at ? at + text->len : NULL;
    size_t len = strlen(prefix);
    while (at < end) {
        const char *stop = memchr(at, '\n', (size_t)(end - at));
        size_t line = (size_t)((stop ? stop : end) - at);
        if (line >= len && memcmp(at, prefix, len) == 0 && (!whole || line == len))
            return xstrndup(at, line < 200 ? line : 200);
        at += line + 1;
    }
    return NULL;
}

static char *find_breach(const struct run_result *result)
{
    const struct buf *texts[] = {
        &result->run.out, &result->run.err, &result->compile.out, &result->compile.err};
    char *line = NULL;
    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]) && !line; i++)
        line = find_line(texts[i], "BREACH", false);
    return line;
}

static bool holds(const void *data, size_t len, const char *token)
{
    return data && memmem(data, len, token, strlen(token));
}

static bool tells_secret(const struct run_result *result, const char *token)
{
    const struct buf *texts[] = {
        &result->run.out, &result->run.err, &result->compile.out, &result->compile.err};
    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
        if (holds(texts[i]->data, texts[i]->len, token))
            return true;
    }
    for (size_t i = 0; i < result->files.count; i++) {
        const struct run_file *file = &result->files.items[i];
        if (holds(file->content, file->size, token) || strstr(file->name, token))
            return true;
    }
    return strstr(result->run.message, token) || strstr(result->compile.message, token);
}

/* The allowed statuses as text: "ok or runtime_error". */
static char *expected_text(const struct attack_case *c)
{
    char *text = xstrdup("");
    for (unsigned i = 0; i < RUN_STATUS_COUNT; i++) {
        if (c->statuses & (1u << i)) {
            char *longer = xasprintf(
                "%s%s%s", text, text[0] ? " or " : "", run_status_name((enum run_status)i));
            free(text);
            text = longer;
        }
    }
    return text;
}

static void judge_status(struct attack *a, const struct run_result *result)
{
    const struct attack_case *c = a->c;
    const struct stage_result *run = &result->run;
    if (!(c->statuses & (1u << run->status))) {
        cleanup_free char *expected = expected_text(c);
        fail(a, "%s, not %s%s%s", run_status_name(run->status), expected,
            run->message[0] ? ": " : "", run->message);
    }
    if (run->status == RUN_SIGNALED && c->signal &&
        !str_eq(run_signal_name(run->signal), c->signal))
        fail(a, "killed by %s, not by %s", run_signal_name(run->signal), c->signal);
    if (run->status == RUN_RUNTIME_ERROR && c->exit_code >= 0 && run->exit_code != c->exit_code)
        fail(a, "exit code %d, not %d", run->exit_code, c->exit_code);
    cleanup_free char *done = find_line(&run->out, "done", true);
    if (run->status == RUN_OK && !done)
        fail(a, "ended without the line `done`");
    for (unsigned i = 0; i < HIT_COUNT; i++) {
        if ((c->hits & (1u << i)) && !(a->out->limits_hit & (1u << i)))
            fail(a, "%s, but the %s limit is not in limits_hit", run_status_name(run->status),
                run_hit_name(i));
        if ((c->not_hits & (1u << i)) && (a->out->limits_hit & (1u << i)))
            fail(a, "%s, and the %s limit is in limits_hit", run_status_name(run->status),
                run_hit_name(i));
    }
}

static void judge_files(struct attack *a, const struct run_result *result)
{
    for (size_t i = 0; i < a->c->expect_files.count; i++) {
        cleanup_free char *name = xstrdup(a->c->expect_files.items[i]);
        char *error = strchr(name, ' ');
        if (!error) {
            fail(a, "expect-file: `%s` names no error", name);
            return;
        }
        *error++ = '\0';
        const struct run_file *file = run_files_find(&result->files, name);
        if (!file)
            fail(a, "the answer does not tell of the file %s", name);
        else if (!str_eq(file->error, error))
            fail(a, "the file %s is %s, not %s", name, file->error ? file->error : "there",
                error);
    }
}

/* A case without a wall limit of its own (JavaScript) has that of the runtime; its status says
 * when it was reached. */
static void judge_time(struct attack *a, const struct run_result *result)
{
    const struct attack_case *c = a->c;
    if (!c->limits.wall_ms)
        return;
    uint64_t latest_ms = c->limits.wall_ms * a->bench->time_scale + a->bench->slack_ms;
    if (result->run.usage.wall_ms > (double)latest_ms)
        fail(a, "ended after %.0f ms; its limit is %llu ms", result->run.usage.wall_ms,
            (unsigned long long)c->limits.wall_ms);
}

static void judge_attack(struct attack *a, const struct run_result *result)
{
    cleanup_free char *breach = find_breach(result);
    if (breach)
        fail(a, "%s", breach);
    if (a->bench->home && tells_secret(result, a->bench->home->token))
        fail(a, "the canaries' token is in the answer");
    judge_status(a, result);
    judge_files(a, result);
    judge_time(a, result);
}

/* A control must break through, or it proves nothing. */
static void judge_control(struct attack *a, const struct run_result *result)
{
    const struct attack_case *c = a->c;
    cleanup_free char *breach = find_breach(result);
    const char *status = run_status_name(result->run.status);
    switch (c->control_kind) {
    case CONTROL_BREACH:
        if (!breach)
            fail(a, "no breach without %s (%s%s%s)", c->barriers, status,
                result->run.message[0] ? ": " : "", result->run.message);
        break;
    case CONTROL_STATUS:
        if (result->run.status != c->control_value)
            fail(a, "%s without %s, not %s", status, c->barriers,
                run_status_name((enum run_status)c->control_value));
        break;
    case CONTROL_HIT:
        if (!(a->out->limits_hit & c->control_value))
            fail(a, "%s without %s, and the limit is not hit", status, c->barriers);
        break;
    }
}

/* The source with @CANARY_FILE@ replaced, because a preprocessor cannot read the environment.
 */
static char *fill_in(const struct attack *a, size_t *ret_len)
{
    static const char mark[] = "@CANARY_FILE@";
    cleanup_buf struct buf text = {0};
    buf_init(&text, FILE_MAX_BYTES);
    const char *at = a->c->text;
    for (const char *hit; (hit = strstr(at, mark)); at = hit + strlen(mark)) {
        (void)buf_append(&text, at, (size_t)(hit - at));
        (void)buf_append_str(&text, a->canary.file);
    }
    (void)buf_append_str(&text, at);
    return buf_take(&text, ret_len);
}

static int add_file(
    const struct attack *a, const char *name, struct run_spec *spec, struct err *err)
{
    cleanup_buf struct buf text = {0};
    cleanup_free char *path = xasprintf("%s/%s", a->bench->cases->dir, name);
    buf_init(&text, FILE_MAX_BYTES);
    int r = fs_read_file(AT_FDCWD, path, &text);
    if (r < 0)
        return err_set(err, ERR_INTERNAL, -r, "cannot read %s: %s", path, strerror(-r));
    size_t size;
    char *data = buf_take(&text, &size);
    run_files_add(&spec->files, name, data, size, false);
    return 0;
}

static int make_spec(const struct attack *a, struct run_spec *spec, struct err *err)
{
    const struct attack_case *c = a->c;
    spec->runtime = runtime_find(a->bench->runtimes, c->language);
    spec->limits = c->limits;
    spec->compile_limits = c->compile_limits;
    spec->limits.wall_ms *= a->bench->time_scale;
    spec->limits.cpu_ms *= a->bench->time_scale;
    spec->compile_limits.wall_ms *= a->bench->time_scale;
    spec->compile_limits.cpu_ms *= a->bench->time_scale;
    strv_add_all(&spec->collect, &c->collect);
    size_t len;
    char *text = fill_in(a, &len);
    run_files_add(&spec->files, spec->runtime->main_file, text, len, true);
    for (size_t i = 0; i < c->files.count; i++) {
        int r = add_file(a, c->files.items[i], spec, err);
        if (r < 0)
            return r;
    }
    if (a->bench->home)
        canary_env(&a->canary, &spec->env);
    if (a->victim)
        victim_env(a->victim, &spec->env);
    if (a->control)
        strv_add(&spec->env, "CONTROL=1");
    return 0;
}

static void note_differ(struct attack *a, const struct run_result *result, unsigned run)
{
    if (!a->c->differ)
        return;
    cleanup_free char *prefix = xasprintf("%s:", a->c->differ);
    a->differ[run] = find_line(&result->run.out, prefix, false);
    if (!a->differ[run])
        fail(a, "printed no line `%s`", prefix);
}

int attack_execute(const struct attack_bench *bench, struct run_spec *spec,
    const struct run_watch *watch, struct run_result *result, struct err *err)
{
    CLEANUP(run_plan_done) struct run_plan plan = {0};
    if (bench->run)
        return bench->run(bench, spec, watch, result, err);
    int r = run_plan_make(spec, engine_maxima(bench->engine), &plan, err);
    return r < 0 ? r : engine_run(bench->engine, &plan, watch, result, err);
}

/* A ready box serves one run, and the next one may not be ready yet. */
static int run_box(const struct attack *a, struct run_spec *spec, const struct run_watch *watch,
    struct run_result *result, struct err *err)
{
    bool waits = a->bench->warm && !a->control && spec->runtime->run.park.max;
    uint64_t deadline_ms = clock_ms() + ZYGOTE_MS;
    for (;;) {
        int r = attack_execute(a->bench, spec, watch, result, err);
        if (r < 0 || !waits || result->run.is_warm || result->run.status == RUN_CANCELLED ||
            clock_ms() >= deadline_ms)
            return r;
        (void)nanosleep(&(struct timespec){.tv_nsec = 200000000}, NULL);
    }
}

static void run_probe(struct attack *a, unsigned number)
{
    struct attack_outcome *out = a->out;
    struct err err = {0};
    CLEANUP(run_spec_done) struct run_spec spec;
    CLEANUP(run_result_done) struct run_result result;
    run_spec_init(&spec);
    run_result_init(&result, FILE_MAX_BYTES);
    struct run_watch watch = {.cancel_fd = a->bench->cancel_fd};
    if (a->control) {
        watch.remove = a->c->remove;
        watch.host_root = a->c->host_root;
    }
    int r = make_spec(a, &spec, &err);
    if (r == 0)
        r = run_box(a, &spec, &watch, &result, &err);
    if (r < 0) {
        out->status = RUN_INTERNAL_ERROR;
        out->refusal = err.code;
        fail(a, "internal_error: %s", err.message);
        return;
    }
    out->ran = true;
    out->status = result.run.status;
    out->limits_hit = result.run.limits_hit | result.compile.limits_hit;
    out->usage = result.run.usage;
    if (result.run.status == RUN_CANCELLED) {
        out->cancelled = true;
        fail(a, "cancelled");
        return;
    }
    if (a->bench->warm && !a->control && !result.run.is_warm) {
        fail(a, "ran in a cold box");
        return;
    }
    if (a->control)
        judge_control(a, &result);
    else
        judge_attack(a, &result);
    if (!a->control)
        note_differ(a, &result, number);
}

static void run_probes(struct attack *a)
{
    const struct attack_case *c = a->c;
    unsigned runs = a->control ? 1 : c->runs;
    for (unsigned i = 0; i < runs && a->out->verdict == ATTACK_PENDING; i++)
        run_probe(a, i);
    if (a->victim) {
        char why[200];
        cleanup_free char *last = NULL;
        if (!victim_stop(a->victim, c->differ, &last, why, sizeof(why)))
            fail(a, "the victim %s", why);
        a->victim = NULL;
        if (c->differ && !a->control && !a->differ[1])
            a->differ[1] = take_ptr(last);
    }
    if (c->differ && !a->control && a->out->verdict == ATTACK_PENDING) {
        if (!a->differ[1])
            fail(a, "the other box printed no line `%s:`", c->differ);
        else if (str_eq(a->differ[0], a->differ[1]))
            fail(a, "both boxes say `%s`", a->differ[0]);
    }
}

/* Why the case cannot run on this host, or NULL. */
static char *skip_reason(
    const struct attack_bench *bench, const struct attack_case *c, bool control)
{
    const struct spawn_reply *host = engine_report(bench->engine);
    const struct runtime *rt = runtime_find(bench->runtimes, c->language);
    if (!rt)
        return xasprintf("there is no runtime %s", c->language);
    if (!rt->available)
        return xstrdup(rt->missing);
    if (!bench->home && strcasestr(c->text, "canary"))
        return xstrdup("needs canaries on the host: run `hermes selftest` there");
    if (geteuid() != 0 && c->root_only)
        return xstrdup("needs root");
    if (geteuid() != 0 && c->rootless)
        return xstrdup(c->rootless);
    if (c->needs_cgroup && host->level < LEVEL_STRONG)
        return xstrdup("needs a control group; the level here is process");
    if (control && (c->remove & BARRIER_UID) && !(host->enforced & 1u << FEATURE_UID_RANGE))
        return xstrdup("boxes have one uid here: there is no such barrier to leave out");
    return NULL;
}

void attack_run(const struct attack_bench *bench, const struct attack_case *c, bool control,
    struct attack_outcome *ret)
{
    struct attack a = {.bench = bench, .c = c, .control = control, .out = ret};
    struct err err = {0};
    *ret = (struct attack_outcome){0};
    cleanup_free char *skip = skip_reason(bench, c, control);
    if (skip) {
        ret->verdict = ATTACK_SKIPPED;
        (void)snprintf(ret->why, sizeof(ret->why), "%s", skip);
        return;
    }
    int r = bench->home ? canary_plant(&a.canary, bench->home, &err) : 0;
    if (r == 0 && c->victim)
        r = victim_start(&a.victim, bench, &err);
    if (r < 0) {
        ret->refusal = err.code;
        fail(&a, "%s", err.message);
    } else {
        run_probes(&a);
    }
    char why[200];
    if (bench->home) {
        if (!control && r == 0 && !canary_check(&a.canary, why, sizeof(why)))
            fail(&a, "%s", why);
        canary_remove(&a.canary);
    }
    free(a.differ[0]);
    free(a.differ[1]);
    if (ret->verdict == ATTACK_PENDING)
        ret->verdict = ATTACK_PASSED;
}

/* Runs an empty program until it gets a box of a zygote. */
static int wait_for_zygote(const struct attack_bench *bench, struct err *err)
{
    uint64_t deadline_ms = clock_ms() + ZYGOTE_MS;
    bool is_warm = false;
    int r = 0;
    while (r == 0 && !is_warm && clock_ms() < deadline_ms) {
        CLEANUP(run_spec_done) struct run_spec spec;
        CLEANUP(run_result_done) struct run_result result;
        run_spec_init(&spec);
        run_result_init(&result, FILE_MAX_BYTES);
        struct run_watch watch = {.cancel_fd = bench->cancel_fd};
        spec.runtime = runtime_find(bench->runtimes, "python");
        run_files_add(&spec.files, spec.runtime->main_file, xstrdup("pass\n"), 5, true);
        r = attack_execute(bench, &spec, &watch, &result, err);
        is_warm = r == 0 && result.run.is_warm;
    }
    if (r == 0 && !is_warm)
        r = err_set(err, ERR_UNAVAILABLE, ETIMEDOUT, "no zygote came up; zygotes need root");
    return r;
}

int attack_calibrate(struct attack_bench *bench, struct err *err)
{
    bool forks = bench->warm && runtime_find(bench->runtimes, "python");
    int warm = forks ? wait_for_zygote(bench, err) : 0;
    if (warm < 0)
        return warm;
    CLEANUP(run_spec_done) struct run_spec spec;
    CLEANUP(run_result_done) struct run_result result;
    run_spec_init(&spec);
    run_result_init(&result, FILE_MAX_BYTES);
    struct run_watch watch = {.cancel_fd = bench->cancel_fd};
    spec.runtime = runtime_find(bench->runtimes, "bash");
    bench->slack_ms = SLACK_MS;
    bench->time_scale = 1;
    if (!spec.runtime || !spec.runtime->available)
        return 0;
    run_files_add(&spec.files, spec.runtime->main_file, xstrdup("echo done\n"), 10, true);
    uint64_t start_ms = clock_ms();
    int r = attack_execute(bench, &spec, &watch, &result, err);
    if (r == 0 && result.run.status != RUN_OK && result.run.status != RUN_CANCELLED)
        r = err_set(err, ERR_INTERNAL, EPROTO, "a program that does nothing ends as %s: %s",
            run_status_name(result.run.status), result.run.message);
    unsigned took_ms = (unsigned)(clock_ms() - start_ms);
    if (took_ms > QUICK_MS)
        bench->slack_ms = SLACK_MS * (took_ms / QUICK_MS + 1);
    unsigned scale = (unsigned)(result.run.usage.cpu_ms / QUICK_CPU_MS) + 1;
    bench->time_scale = scale < MAX_TIME_SCALE ? scale : MAX_TIME_SCALE;
    return r;
}

void attack_load_victim(struct attack_bench *bench)
{
    cleanup_buf struct buf text = {0};
    cleanup_free char *path = xasprintf("%s/../victim.py", bench->cases->dir);
    buf_init(&text, VICTIM_MAX_BYTES);
    if (fs_read_file(AT_FDCWD, path, &text) == 0)
        bench->victim = buf_take(&text, &bench->victim_len);
}
