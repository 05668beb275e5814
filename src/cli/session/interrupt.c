/* SPDX-License-Identifier: Apache-2.0 */

/* See interrupt.h. */

#include "cli/session/interrupt.h"

#include "base/alloc.h"
#include "base/cleanup.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

/* Calls the route; remembers the wish when there is none yet. */
static void interrupt(struct interrupter *in)
{
    struct err ignored = {0};
    json_t *answer = NULL;
    (void)pthread_mutex_lock(&in->lock);
    char *path = in->path ? xstrdup(in->path) : NULL;
    const char *method = in->method;
    in->is_pending = !path && in->keeps_early;
    (void)pthread_mutex_unlock(&in->lock);
    if (path)
        (void)client_call(in->client, method, path, NULL, &answer, &ignored);
    json_decref(answer);
    free(path);
}

static void signals(sigset_t *ret)
{
    (void)sigemptyset(ret);
    (void)sigaddset(ret, SIGINT);
    (void)sigaddset(ret, SIGHUP);
    (void)sigaddset(ret, SIGTERM);
}

static void *pass_signals(void *arg)
{
    struct interrupter *in = arg;
    sigset_t set;
    int signal;
    signals(&set);
    while (sigwait(&set, &signal) == 0 && !in->is_over) {
        interrupt(in);
        if (signal == SIGINT)
            continue;
        if (in->leave)
            in->leave(in->context);
        _exit(128 + signal);
    }
    return NULL;
}

int interrupt_start(struct interrupter *in, const struct client *client, struct err *err)
{
    sigset_t set, all, before;
    in->client = client;
    (void)pthread_mutex_init(&in->lock, NULL);
    signals(&set);
    (void)pthread_sigmask(SIG_BLOCK, &set, NULL);
    /* The thread takes our three signals and no other. libedit's handlers (SIGCONT comes with
     * SIGHUP when a terminal closes) use what the thread at the prompt may have freed. */
    (void)sigfillset(&all);
    (void)pthread_sigmask(SIG_SETMASK, &all, &before);
    int r = pthread_create(&in->thread, NULL, pass_signals, in);
    (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (r == 0)
        return 0;
    return err_set(err, ERR_UNAVAILABLE, EAGAIN, "cannot start a thread for Ctrl-C");
}

void interrupt_stop(struct interrupter *in)
{
    interrupt_end(in);
    in->is_over = true;
    (void)pthread_kill(in->thread, SIGINT);
    (void)pthread_join(in->thread, NULL);
    (void)pthread_mutex_destroy(&in->lock);
}

void interrupt_begin(struct interrupter *in, const char *method, const char *path)
{
    (void)pthread_mutex_lock(&in->lock);
    free(in->path);
    in->path = xstrdup(path);
    in->method = method;
    bool is_pending = in->is_pending;
    in->keeps_early = in->is_pending = false;
    (void)pthread_mutex_unlock(&in->lock);
    if (is_pending)
        interrupt(in);
}

void interrupt_end(struct interrupter *in)
{
    (void)pthread_mutex_lock(&in->lock);
    free(take_ptr(in->path));
    (void)pthread_mutex_unlock(&in->lock);
}
