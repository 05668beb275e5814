/* SPDX-License-Identifier: Apache-2.0 */

/* See victim.h. The victim runs on a thread of its own. Its output is kept here, and both
 * threads use it under one lock. Cancelling the run ends it; any other end is a failure. */

#include "attack/victim.h"

#include "attack/run.h"
#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/id.h"
#include "base/str.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

enum {
    START_S = 30,     /* for the first count */
    COUNT_ON_S = 10,  /* for the next count after an attack */
    LIFE_MS = 120000, /* longer than any case */
    OUTPUT_MAX = 1 << 20,
    PORT = 8080, /* in the box's own network */
};

struct victim {
    const struct attack_bench *bench;
    char token[ID_MAX];
    int stop_fd;
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    unsigned count; /* lines `count:` so far */
    bool ended;
    struct run_result result;
    struct buf text; /* output so far */
    struct err err;
    int failed;
};

static void on_output(void *context, enum run_stream stream, const char *data, size_t len)
{
    struct victim *v = context;
    if (stream != STREAM_STDOUT)
        return;
    (void)pthread_mutex_lock(&v->lock);
    (void)buf_append_some(&v->text, data, len);
    v->count = 0;
    for (const char *at = v->text.data; at && (at = strstr(at, "count:")); at++)
        v->count++;
    (void)pthread_cond_broadcast(&v->changed);
    (void)pthread_mutex_unlock(&v->lock);
}

static void *run_victim(void *context)
{
    struct victim *v = context;
    CLEANUP(run_spec_done) struct run_spec spec;
    run_spec_init(&spec);
    spec.runtime = runtime_find(v->bench->runtimes, "python");
    spec.limits = (struct run_limits){.wall_ms = LIFE_MS,
        .cpu_ms = LIFE_MS,
        .memory_mb = 128,
        .processes = 64,
        .disk_mb = 32,
        .output_kb = OUTPUT_MAX >> 10};
    char *source = xmalloc(v->bench->victim_len + 1);
    memcpy(source, v->bench->victim, v->bench->victim_len + 1);
    run_files_add(&spec.files, spec.runtime->main_file, source, v->bench->victim_len, true);
    victim_env(v, &spec.env);
    struct run_watch watch = {.context = v, .output = on_output, .cancel_fd = v->stop_fd};
    int r = attack_execute(v->bench, &spec, &watch, &v->result, &v->err);
    (void)pthread_mutex_lock(&v->lock);
    v->failed = r;
    v->ended = true;
    (void)pthread_cond_broadcast(&v->changed);
    (void)pthread_mutex_unlock(&v->lock);
    return NULL;
}

/* Waits for the next count. False when it did not come in time. */
static bool wait_count(struct victim *v, unsigned seconds)
{
    struct timespec until;
    (void)clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_sec += seconds;
    (void)pthread_mutex_lock(&v->lock);
    const unsigned than = v->count;
    int r = 0;
    while (!v->ended && v->count <= than && r == 0)
        r = pthread_cond_timedwait(&v->changed, &v->lock, &until);
    bool counted = !v->ended && v->count > than;
    (void)pthread_mutex_unlock(&v->lock);
    return counted;
}

static void end(struct victim *v)
{
    (void)eventfd_write(v->stop_fd, 1);
    (void)pthread_join(v->thread, NULL);
}

static void victim_free(struct victim *v)
{
    (void)close(v->stop_fd);
    (void)pthread_cond_destroy(&v->changed);
    (void)pthread_mutex_destroy(&v->lock);
    run_result_done(&v->result);
    buf_done(&v->text);
    free(v);
}

int victim_start(struct victim **ret, const struct attack_bench *bench, struct err *err)
{
    const struct runtime *python = runtime_find(bench->runtimes, "python");
    if (!bench->victim || !python || !python->available)
        return err_set(err, ERR_UNAVAILABLE, ENOENT, "the victim needs python and victim.py");
    int stop_fd = eventfd(0, EFD_CLOEXEC);
    if (stop_fd < 0)
        return err_set(err, ERR_INTERNAL, errno, "cannot make an eventfd: %s", strerror(errno));
    struct victim *v = xcalloc(1, sizeof(*v));
    v->bench = bench;
    v->stop_fd = stop_fd;
    id_make("victim_", v->token);
    run_result_init(&v->result, OUTPUT_MAX);
    buf_init(&v->text, OUTPUT_MAX);
    pthread_condattr_t attr;
    (void)pthread_condattr_init(&attr);
    (void)pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    (void)pthread_mutex_init(&v->lock, NULL);
    (void)pthread_cond_init(&v->changed, &attr);
    (void)pthread_condattr_destroy(&attr);
    int r = pthread_create(&v->thread, NULL, run_victim, v);
    if (r) {
        victim_free(v);
        return err_set(err, ERR_INTERNAL, r, "cannot start a thread: %s", strerror(r));
    }
    if (!wait_count(v, START_S)) {
        end(v);
        r = err_set(err, ERR_INTERNAL, ETIMEDOUT, "the victim did not start: %s",
            v->failed ? v->err.message : run_status_name(v->result.run.status));
        victim_free(v);
        return r;
    }
    *ret = v;
    return 0;
}

void victim_env(const struct victim *v, struct strv *env)
{
    strv_add_owned(env, xasprintf("VICTIM_TOKEN=%s", v->token));
    strv_add_owned(env, xasprintf("VICTIM_PORT=%d", PORT));
}

/* Finds a line of the output that begins with prefix. The caller frees it. */
static char *line_of(const struct victim *v, const char *prefix)
{
    const char *text = v->text.data ? v->text.data : "";
    for (const char *at = text; (at = strstr(at, prefix)); at++) {
        if (at == text || at[-1] == '\n')
            return xstrndup(at, strcspn(at, "\n"));
    }
    return NULL;
}

bool victim_stop(struct victim *v, const char *key, char **ret_line, char *why, size_t why_size)
{
    bool counts = wait_count(v, COUNT_ON_S);
    end(v);
    cleanup_free char *breach = line_of(v, "BREACH");
    cleanup_free char *prefix = xasprintf("%s:", key ? key : "");
    bool fine = false;
    if (breach)
        (void)snprintf(why, why_size, "says: %s", breach);
    else if (v->failed)
        (void)snprintf(why, why_size, "failed: %s", v->err.message);
    else if (v->result.run.status != RUN_CANCELLED)
        (void)snprintf(why, why_size, "ended as %s", run_status_name(v->result.run.status));
    else if (!counts)
        (void)snprintf(why, why_size, "no longer counts");
    else
        fine = true;
    *ret_line = key ? line_of(v, prefix) : NULL;
    victim_free(v);
    return fine;
}
