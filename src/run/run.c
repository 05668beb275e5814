/* SPDX-License-Identifier: Apache-2.0 */

/* The plain data of a run: life cycle of run_spec and run_result, and the names of statuses,
 * limits and signals. This file decides nothing; run/engine.c and the front doors fill these
 * structures. */

#include "run/run.h"

#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/str.h"
#include "network/hub.h"
#include "network/report.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

static const char *const status_names[RUN_STATUS_COUNT] = {
    [RUN_QUEUED] = "queued",
    [RUN_RUNNING] = "running",
    [RUN_OK] = "ok",
    [RUN_RUNTIME_ERROR] = "runtime_error",
    [RUN_SIGNALED] = "signaled",
    [RUN_TIME_LIMIT] = "time_limit",
    [RUN_MEMORY_LIMIT] = "memory_limit",
    [RUN_OUTPUT_LIMIT] = "output_limit",
    [RUN_COMPILE_ERROR] = "compile_error",
    [RUN_CANCELLED] = "cancelled",
    [RUN_INTERNAL_ERROR] = "internal_error",
};

const char *run_status_name(enum run_status status)
{
    if ((unsigned)status >= RUN_STATUS_COUNT)
        return "internal_error";
    return status_names[status];
}

const char *run_hit_name(unsigned bit_index)
{
    static const char *const names[HIT_COUNT] = {
        "wall", "cpu", "memory", "output", "network", "processes", "disk"};

    return bit_index < HIT_COUNT ? names[bit_index] : NULL;
}

const char *run_signal_name(int signal)
{
#define ROW(name) [name] = #name
    static const char *const names[] = {ROW(SIGHUP), ROW(SIGINT), ROW(SIGQUIT), ROW(SIGILL),
        ROW(SIGTRAP), ROW(SIGABRT), ROW(SIGBUS), ROW(SIGFPE), ROW(SIGKILL), ROW(SIGUSR1),
        ROW(SIGSEGV), ROW(SIGUSR2), ROW(SIGPIPE), ROW(SIGALRM), ROW(SIGTERM), ROW(SIGSTKFLT),
        ROW(SIGCHLD), ROW(SIGCONT), ROW(SIGSTOP), ROW(SIGTSTP), ROW(SIGTTIN), ROW(SIGTTOU),
        ROW(SIGURG), ROW(SIGXCPU), ROW(SIGXFSZ), ROW(SIGVTALRM), ROW(SIGPROF), ROW(SIGWINCH),
        ROW(SIGIO), ROW(SIGPWR), ROW(SIGSYS)};
#undef ROW
    static const char *const real_time[] = {"SIG32", "SIG33", "SIGRTMIN", "SIGRTMIN+1",
        "SIGRTMIN+2", "SIGRTMIN+3", "SIGRTMIN+4", "SIGRTMIN+5", "SIGRTMIN+6", "SIGRTMIN+7",
        "SIGRTMIN+8", "SIGRTMIN+9", "SIGRTMIN+10", "SIGRTMIN+11", "SIGRTMIN+12", "SIGRTMIN+13",
        "SIGRTMIN+14", "SIGRTMIN+15", "SIGRTMAX-14", "SIGRTMAX-13", "SIGRTMAX-12",
        "SIGRTMAX-11", "SIGRTMAX-10", "SIGRTMAX-9", "SIGRTMAX-8", "SIGRTMAX-7", "SIGRTMAX-6",
        "SIGRTMAX-5", "SIGRTMAX-4", "SIGRTMAX-3", "SIGRTMAX-2", "SIGRTMAX-1", "SIGRTMAX"};
    const int first = 32;
    const int count = (int)(sizeof(real_time) / sizeof(real_time[0]));

    if (signal >= first && signal < first + count)
        return real_time[signal - first];
    return signal > 0 && signal < first ? names[signal] : "SIG0";
}

void run_spec_init(struct run_spec *spec)
{
    *spec = (struct run_spec){.stdin_fd = -EBADF};
}

struct run_image *run_image_copy(const struct run_image *image)
{
    if (!image)
        return NULL;
    struct run_image *copy = xmalloc(sizeof(*copy));
    *copy = *image;
    copy->former = NULL;
    copy->env = (struct strv){0};
    strv_add_all(&copy->env, &image->env);
    copy->preload = (struct strv){0};
    strv_add_all(&copy->preload, &image->preload);
    return copy;
}

void run_image_free(struct run_image *image)
{
    while (image) {
        struct run_image *former = image->former;
        strv_done(&image->env);
        strv_done(&image->preload);
        free(image);
        image = former;
    }
}

void run_spec_done(struct run_spec *spec)
{
    run_files_done(&spec->files);
    free(spec->entry);
    free(spec->shell);
    strv_done(&spec->args);
    strv_done(&spec->env);
    strv_done(&spec->compile_args);
    strv_done(&spec->collect);
    strv_done(&spec->secrets);
    free(spec->network);
    network_asker_free(spec->asker);
    free(spec->image_name);
    run_image_free(spec->image);
    free(spec->stdin_data);
    free(spec->cache_scope);
    run_spec_init(spec);
}

const char *run_env_problem(const char *key, const char *value, size_t value_len)
{
    size_t len = strlen(key);

    if (len == 0)
        return "the name of a variable is empty";
    if (len > 128)
        return "the name of a variable is longer than 128 bytes";
    for (size_t i = 0; i < len; i++) {
        char c = key[i];
        bool letter = (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || c == '_';
        bool digit = c >= '0' && c <= '9';

        if (!letter && !(digit && i > 0))
            return "the name of a variable must match [A-Za-z_][A-Za-z0-9_]*";
    }
    if (str_has_prefix(key, "HERMES_"))
        return "names that begin with HERMES_ are reserved";
    if (memchr(value, '\0', value_len) != NULL)
        return "the value of a variable contains a NUL byte";
    return NULL;
}

void stage_result_init(struct stage_result *stage, uint64_t output_max)
{
    *stage = (struct stage_result){.status = RUN_QUEUED};
    buf_init(&stage->out, output_max);
    buf_init(&stage->err, output_max);
}

void stage_result_done(struct stage_result *stage)
{
    buf_done(&stage->out);
    buf_done(&stage->err);
    network_report_free(stage->network);
    stage->network = NULL;
}

void run_result_init(struct run_result *result, uint64_t output_max)
{
    *result = (struct run_result){0};
    stage_result_init(&result->run, output_max);
    stage_result_init(&result->compile, output_max);
}

void run_result_done(struct run_result *result)
{
    stage_result_done(&result->run);
    stage_result_done(&result->compile);
    run_files_done(&result->files);
    free(result->approvals);
    result->approvals = NULL;
}

int run_exit_status(const struct run_result *result, int cancel_signal)
{
    enum { EXIT_TIME = 124, EXIT_HERMES_FAILED = 125, EXIT_BY_SIGNAL = 128 };
    const struct stage_result *run = &result->run;
    const struct stage_result *compile = &result->compile;

    switch (run->status) {
    case RUN_OK:
    case RUN_RUNTIME_ERROR:
        return run->exit_code;
    case RUN_SIGNALED:
        return EXIT_BY_SIGNAL + run->signal;
    case RUN_TIME_LIMIT:
        return EXIT_TIME;
    case RUN_MEMORY_LIMIT:
        return EXIT_BY_SIGNAL + SIGKILL;
    case RUN_OUTPUT_LIMIT:
        return EXIT_BY_SIGNAL + SIGXFSZ;
    case RUN_COMPILE_ERROR:
        return compile->exited && compile->exit_code ? compile->exit_code : 1;
    case RUN_CANCELLED:
        return EXIT_BY_SIGNAL + (cancel_signal ? cancel_signal : SIGINT);
    default:
        return EXIT_HERMES_FAILED;
    }
}
