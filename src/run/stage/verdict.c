/* SPDX-License-Identifier: Apache-2.0 */

/* The verdict about a box that has ended: what the spawner reported, what was measured and why
 * the box was killed become a status, limits_hit and a message, or an error of Hermes. */

#include "run/stage/internal.h"

#include "base/str.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>

static void say(struct stage_result *result, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));
static void say(struct stage_result *result, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    (void)vsnprintf(result->message, sizeof(result->message), fmt, args);
    va_end(args);
}

/* The verdict when the program ended without reaching a limit. */
static void judge_exit(struct stage_result *result, int status)
{
    if (WIFEXITED(status)) {
        result->exited = true;
        result->exit_code = WEXITSTATUS(status);
        result->status = result->exit_code == 0 ? RUN_OK : RUN_RUNTIME_ERROR;
    } else {
        result->signal = WTERMSIG(status);
        result->status = RUN_SIGNALED;
    }
}

/* Adds the limits that the box has reached. A program that ended by itself is judged by the
 * measured usage: our order to kill it may have come too late to matter. */
static void note_hits(struct stage *st)
{
    struct stage_result *result = st->result;
    const struct run_limits *limits = &st->spec->limits;
    const struct spawn_event *end = &st->end;
    unsigned *hit = &result->limits_hit;
    bool exited = end->flags & ENDED_EXITED;
    if (end->flags & ENDED_PIDS)
        *hit |= HIT_PROCESSES;
    if (end->flags & ENDED_DISK)
        *hit |= HIT_DISK;
    if (end->flags & ENDED_OOM)
        *hit |= HIT_MEMORY;
    if ((st->kill == KILL_WALL && !exited) || result->usage.wall_ms >= (double)limits->wall_ms)
        *hit |= HIT_WALL;
    if ((st->kill == KILL_CPU && !exited) || result->usage.cpu_ms >= (double)limits->cpu_ms)
        *hit |= HIT_CPU;
}

/* The verdict when the program was cancelled or a limit has ended it. */
static void judge_stop(const struct stage *st)
{
    struct stage_result *result = st->result;
    const struct run_limits *limits = &st->spec->limits;
    unsigned hit = result->limits_hit;
    if (st->kill == KILL_CANCEL && !(st->end.flags & ENDED_EXITED)) {
        result->status = RUN_CANCELLED;
        say(result, "cancelled");
    } else if (hit & HIT_MEMORY) {
        result->status = RUN_MEMORY_LIMIT;
        say(result, "memory limit of %llu MiB reached", (unsigned long long)limits->memory_mb);
    } else if (hit & HIT_OUTPUT) {
        result->status = RUN_OUTPUT_LIMIT;
        uint64_t max = st->spec->stdout_max;
        bool stdout_full = max && st->stdout_bytes == max;
        say(result, "wrote more than %llu KiB to a stream",
            (unsigned long long)(stdout_full ? max >> 10 : limits->output_kb));
    } else if (hit & HIT_CPU) {
        result->status = RUN_TIME_LIMIT;
        say(result, "CPU time limit of %llu ms reached", (unsigned long long)limits->cpu_ms);
    } else if (hit & HIT_WALL) {
        result->status = RUN_TIME_LIMIT;
        say(result, "wall time limit of %llu ms reached", (unsigned long long)limits->wall_ms);
    }
}

static void judge(struct stage *st)
{
    struct stage_result *result = st->result;
    note_hits(st);
    if (st->end.flags & ENDED_EXITED)
        judge_exit(result, st->end.wait_status);
    judge_stop(st);
    if (result->status != RUN_OK && result->status != RUN_RUNTIME_ERROR) {
        result->exited = false;
        if (result->status != RUN_SIGNALED)
            result->signal = 0;
    }
    bool missing = st->kill == KILL_LATE || st->collect_broken ||
                   (st->collected && (!st->collected->ended || st->collected->cut));
    if (missing && !result->message[0])
        say(result, "not all files could be collected");
}

/* Errors of execve that only the machine can cause. All others can be caused by a file of the
 * user, for example one that is not a program. */
static bool is_host_error(int error)
{
    return error == -EAGAIN || error == -EINTR || error == -EIO || error == -EMFILE ||
           error == -ENFILE || error == -ENOSPC;
}

/* A directory of the run could not be mounted. Another run may have put a link in its place. */
static int fail_mount(const struct stage *st, const struct run_mount *mount, struct err *err)
{
    int error = -st->end.error;
    bool is_blocked = error == ELOOP || error == ENOTDIR;
    return err_set(err, is_blocked ? ERR_CONFLICT : err_code_of(error), error,
        "cannot mount a directory at %s: %s; the program did not start", mount->path,
        is_blocked ? "a link or a file is in the way" : strerror(error));
}

int stage_fail(const struct stage *st, struct err *err)
{
    const struct spawn_event *end = &st->end;
    size_t which = (size_t)end->wait_status;
    if (end->step == STEP_MOUNT && which - 1 < st->spec->mount_count)
        return fail_mount(st, &st->spec->mounts[which - 1], err);
    return err_set(err, err_code_of(-end->error), -end->error,
        "cannot %s: %s; the program did not start", spawner_step_text(end->step),
        strerror(-end->error));
}

/* The program could not be executed: a result if its own file is the cause. */
static int judge_exec(const struct stage *st, struct err *err)
{
    struct stage_result *result = st->result;
    int error = -st->end.error;
    if (error == E2BIG)
        return err_set(err, ERR_TOO_LARGE, E2BIG,
            "arguments and variables are too long for a program; give them as files or stdin");
    if (!str_has_prefix(st->spec->exec_path, "/box/") || is_host_error(-error))
        return err_set(err, ERR_INTERNAL, error, "cannot execute %s: %s", st->spec->exec_path,
            strerror(error));
    result->status = RUN_RUNTIME_ERROR;
    result->exited = true;
    result->exit_code = 126;
    say(result, "cannot execute the program: %s", strerror(error));
    return 0;
}

/* Why the end of the box says nothing about the program, as an error; or 0. */
static int check_end(const struct stage *st, struct err *err)
{
    const struct spawn_event *end = &st->end;
    if (end->flags & ENDED_SHORT)
        return err_set(err, ERR_UNAVAILABLE, ENOMEM,
            "the machine ran out of memory and ended a process of the box; try again later");
    bool explained = st->kill || (end->flags & (ENDED_EXITED | ENDED_OOM)) ||
                     (st->result->limits_hit & HIT_OUTPUT);
    if (!explained)
        return err_set(err, ERR_INTERNAL, ECHILD,
            "box init died, so the result is not known; run the program again");
    if (st->kill == KILL_LATE && !st->started)
        return err_set(err, ERR_UNAVAILABLE, ETIMEDOUT,
            "the box was not ready after %d s; the machine is overloaded",
            STAGE_START_MS / 1000);
    return 0;
}

int stage_judge(struct stage *st, struct err *err)
{
    struct stage_result *result = st->result;
    if (result->out.is_starved || result->err.is_starved ||
        (st->collected && st->collected->is_starved))
        return err_set(err, ERR_UNAVAILABLE, ENOMEM,
            "the server has no memory left for what the program wrote; try again later, or ask "
            "for less output");
    if (st->end.flags & ENDED_EXEC_FAILED)
        return judge_exec(st, err);
    int r = check_end(st, err);
    if (r < 0)
        return r;
    judge(st);
    bool is_own_end = result->status == RUN_RUNTIME_ERROR || result->status == RUN_SIGNALED;
    if (st->end.flags & ENDED_CROWDED && is_own_end)
        return err_set(err, ERR_UNAVAILABLE, EAGAIN,
            "the program was refused a process because all programs together have as many as "
            "the setting processes_total allows, and it failed; try again later");
    return 0;
}
