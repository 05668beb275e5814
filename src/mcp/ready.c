/* SPDX-License-Identifier: Apache-2.0 */

/* See ready.h. A row of the table is empty, being filled, or has a session. A call that
 * finds a row being filled waits for it: a second start beside it would take longer. */

#include "mcp/ready.h"

#include "service/image.h"
#include "session/session.h"
#include "state/state.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <time.h>

struct row {
    const struct runtime *runtime; /* NULL: free */
    int owner;
    bool is_filling;
    struct session *session;
};

/* One server, or one `hermes mcp`, per process. */
static struct row rows[READY_MAX];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t news = PTHREAD_COND_INITIALIZER;
static bool is_stopping;

static int make(struct mcp *mcp, const struct runtime *runtime, int owner, int cancel_fd,
    struct session **ret, struct err *err)
{
    struct session_spec spec = {.runtime = runtime, .idle_timeout_s = READY_IDLE_S};
    struct state *state = mcp_state(mcp);
    if (spec.idle_timeout_s > state->config.session_lifetime_s)
        spec.idle_timeout_s = state->config.session_lifetime_s;
    (void)snprintf(spec.name, sizeof(spec.name), "mcp execute");
    int r = service_session_image(state, owner, &spec, err);
    if (r == 0)
        r = session_create(state->sessions, &spec, owner, cancel_fd, ret, err);
    session_spec_done(&spec);
    return r;
}

/* The lock is held. */
static struct row *find(const struct runtime *runtime, int owner)
{
    for (size_t i = 0; i < READY_MAX; i++) {
        if (rows[i].runtime == runtime && rows[i].owner == owner)
            return &rows[i];
    }
    return NULL;
}

/* A row for another session: a free one, else the first that is not being filled; its session
 * goes to *ret_old. The lock is held. */
static struct row *claim(struct session **ret_old)
{
    struct row *found = NULL;
    for (size_t i = 0; i < READY_MAX; i++) {
        if (!rows[i].runtime) {
            found = &rows[i];
            break;
        }
        if (!found && !rows[i].is_filling)
            found = &rows[i];
    }
    *ret_old = found ? found->session : NULL;
    return found;
}

static void end(struct session *s)
{
    if (s) {
        session_delete(s);
        session_unref(s);
    }
}

static struct session *take(const struct runtime *runtime, int owner)
{
    struct session *s = NULL;
    (void)pthread_mutex_lock(&lock);
    struct row *row;
    while ((row = find(runtime, owner)) && row->is_filling)
        (void)pthread_cond_wait(&news, &lock);
    if (row) {
        s = row->session;
        *row = (struct row){0};
    }
    (void)pthread_mutex_unlock(&lock);
    return s;
}

int ready_take(struct mcp *mcp, const struct runtime *runtime, int owner, int cancel_fd,
    struct session **ret, struct err *err)
{
    struct session *s = take(runtime, owner);
    if (s && !session_is_lost(s)) {
        *ret = s;
        return 0;
    }
    end(s);
    return make(mcp, runtime, owner, cancel_fd, ret, err);
}

void ready_refill(struct mcp *mcp, const struct runtime *runtime, int owner)
{
    struct session *old = NULL;
    struct session *s = NULL;
    struct err ignored = {0};
    (void)pthread_mutex_lock(&lock);
    bool is_wanted = mcp_state(mcp)->config.session_parked && !is_stopping;
    struct row *row = !is_wanted || find(runtime, owner) ? NULL : claim(&old);
    if (row)
        *row = (struct row){.runtime = runtime, .owner = owner, .is_filling = true};
    (void)pthread_mutex_unlock(&lock);
    end(old);
    if (!row)
        return;
    /* If there is no room now, the next execution starts its own session, or says why it
     * cannot. */
    int r = make(mcp, runtime, owner, -1, &s, &ignored);
    (void)pthread_mutex_lock(&lock);
    *row = (struct row){0};
    if (r == 0 && !is_stopping) {
        *row = (struct row){.runtime = runtime, .owner = owner, .session = s};
        s = NULL;
    }
    (void)pthread_cond_broadcast(&news);
    (void)pthread_mutex_unlock(&lock);
    end(s);
}

void ready_stop(struct mcp *mcp)
{
    (void)pthread_mutex_lock(&lock);
    is_stopping = true;
    for (size_t i = 0; i < READY_MAX; i++) {
        session_unref(rows[i].session);
        rows[i].session = NULL;
    }
    (void)pthread_mutex_unlock(&lock);
}
