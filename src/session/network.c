/* SPDX-License-Identifier: Apache-2.0 */

/* See network.h. A box that was made without a network gets one by COMMAND_NETWORK. The answer
 * comes as an event of the box, which only the holder of the session reads: session_event()
 * passes it on to the thread that waits here. */

#include "session/network.h"

#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/os/fdpass.h"
#include "network/policy.h"
#include "proto/kit.h"
#include "session/internal.h"
#include "state/effects.h"
#include "state/state.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>

enum {
    GIVE_MS = 10000, /* for EVENT_NETWORK */
    LOOK_MS = 20,    /* between two looks, while another thread reads the events */
};

struct session_network {
    pthread_mutex_t changing; /* held while the policy is changed */
    pthread_mutex_t lock;     /* protects the members below */
    unsigned refs;
    struct network_policy *policy; /* in force; NULL: none */
    struct network_link *link;     /* NULL: the box has never had a network */
    bool is_answered;
    int error; /* of the answer */
    unsigned part;
};

struct session_network *session_network_new(struct network_policy *policy)
{
    struct session_network *n = xcalloc(1, sizeof(*n));
    n->refs = 1;
    n->policy = policy;
    (void)pthread_mutex_init(&n->changing, NULL);
    (void)pthread_mutex_init(&n->lock, NULL);
    return n;
}

struct session_network *session_network_ref(struct session_network *network)
{
    (void)pthread_mutex_lock(&network->lock);
    network->refs++;
    (void)pthread_mutex_unlock(&network->lock);
    return network;
}

void session_network_unref(struct session_network *network)
{
    if (!network)
        return;
    (void)pthread_mutex_lock(&network->lock);
    bool is_last = --network->refs == 0;
    (void)pthread_mutex_unlock(&network->lock);
    if (!is_last)
        return;
    network_link_unref(network->link);
    free(network->policy);
    (void)pthread_mutex_destroy(&network->changing);
    (void)pthread_mutex_destroy(&network->lock);
    free(network);
}

struct network_policy *session_network_policy(struct session_network *network)
{
    (void)pthread_mutex_lock(&network->lock);
    struct network_policy *copy = network_policy_copy(network->policy);
    (void)pthread_mutex_unlock(&network->lock);
    return copy;
}

/* Makes a link with the policy and the limits of the session. */
static int open_link(const struct session *s, const struct network_policy *policy,
    struct network_link **ret, int *ret_fd, struct err *err)
{
    cleanup_free struct network_policy *limited = network_policy_copy(policy);
    network_policy_limit(limited, &s->spec.limits);
    const struct effects_request request = {.owner = s->owner_index,
        .session = s->id,
        .mounts = s->spec.mounts,
        .mount_count = s->spec.mount_count,
        .network = limited};
    /* Always has an asker: the mode may become "ask" while the session lives. */
    struct network_asker *asker =
        network_asker_new(s->owner, NULL, s->id, effects_box(s->all->state, &request));
    int r = network_link_open(
        engine_network_hub(s->all->state->engine), limited, asker, ret, ret_fd, err);
    network_asker_free(asker);
    return r;
}

int session_network_open(struct session *s, int *ret_fd, struct err *err)
{
    struct session_network *own = session_network_new(session_network_policy(s->network));
    int r = own->policy ? open_link(s, own->policy, &own->link, ret_fd, err) : 0;
    if (!own->policy)
        *ret_fd = -1;
    (void)pthread_mutex_lock(&s->lock);
    struct session_network *old = s->network;
    s->network = own;
    (void)pthread_mutex_unlock(&s->lock);
    session_network_unref(old);
    return r;
}

struct network_tally *session_network_follow(struct session_network *network)
{
    (void)pthread_mutex_lock(&network->lock);
    struct network_link *link = network_link_ref(network->link);
    (void)pthread_mutex_unlock(&network->lock);
    struct network_tally *tally = link ? network_tally_new(link, false) : NULL;
    network_link_unref(link);
    return tally;
}

void session_network_answered(struct session_network *network, const struct spawn_event *event)
{
    (void)pthread_mutex_lock(&network->lock);
    network->is_answered = true;
    network->error = event->error;
    network->part = (unsigned)event->wait_status;
    (void)pthread_mutex_unlock(&network->lock);
}

/* Takes the next event of the box, if that is up to this thread. */
static void take_event(struct session *s, bool is_held)
{
    struct spawn_event event;
    if (is_held) {
        if (session_event(s, &event) == 1 &&
            (event.kind == EVENT_EXITED || event.kind == EVENT_ENDED))
            session_note_end(s, &event);
        return;
    }
    (void)pthread_mutex_lock(&s->lock);
    session_refresh(s); /* leaves the events to a holder, if there is one */
    (void)pthread_mutex_unlock(&s->lock);
}

/* Whether the answer is there. */
static bool look(struct session_network *n, int *ret_error, unsigned *ret_part)
{
    (void)pthread_mutex_lock(&n->lock);
    bool is_answered = n->is_answered;
    *ret_error = n->error;
    *ret_part = n->part;
    (void)pthread_mutex_unlock(&n->lock);
    return is_answered;
}

static int refused(int error, unsigned part, struct err *err)
{
    static const char *const parts[PART_COUNT] = {
#define PART_TEXT(name, text) [name] = text,
        KIT_PARTS(PART_TEXT)
#undef PART_TEXT
    };
    if (error == -EEXIST)
        return err_set(err, ERR_CONFLICT, EEXIST,
            "the session has just been given a network by another request; try again");
    return err_set(err, err_code_of(-error) == ERR_INTERNAL ? ERR_UNSUPPORTED : ERR_UNAVAILABLE,
        -error, "the session cannot be given a network (%s): %s",
        part < PART_COUNT ? parts[part] : "kit", strerror(-error));
}

/* Sends the channel to the spawner. *ret_socket is a copy of the box's socket. */
static int send_channel(struct session *s, int fd, int *ret_socket, struct err *err)
{
    const struct spawn_command command = {.kind = COMMAND_NETWORK};
    (void)pthread_mutex_lock(&s->lock);
    int r = s->box.socket < 0
                ? -EPIPE
                : fdpass_send_now(s->box.socket, &command, sizeof(command), &fd, 1);
    if (r == 0)
        *ret_socket = fcntl(s->box.socket, F_DUPFD_CLOEXEC, 3);
    (void)pthread_mutex_unlock(&s->lock);
    return r < 0 ? err_set(err, ERR_UNAVAILABLE, -r,
                       "the box of the session has ended; reset the session")
                 : 0;
}

static int await_answer(
    struct session *s, bool is_held, struct session_network *n, int socket, struct err *err)
{
    uint64_t until_ms = clock_ms() + GIVE_MS;
    int error = 0;
    unsigned part = PART_COUNT;
    while (!look(n, &error, &part)) {
        struct pollfd ready = {.fd = socket, .events = POLLIN};
        if (clock_ms() >= until_ms)
            return err_set(err, ERR_UNAVAILABLE, ETIMEDOUT,
                "the spawner did not give the session its network in time; try again later");
        (void)poll(&ready, 1, LOOK_MS);
        take_event(s, is_held);
    }
    return error < 0 ? refused(error, part, err) : 0;
}

/* The spawner may give the channel to egress after the caller stopped waiting. The box must
 * not get a network that the session does not know of. */
static void close_late(struct network_link *link)
{
    struct err ignored = {0};
    cleanup_free struct network_policy *none = network_policy_new(NETWORK_NONE);
    (void)network_link_change(link, none, &ignored);
}

/* Gives a network to a box that has none. */
static int give(struct session *s, bool is_held, struct session_network *n,
    const struct network_policy *policy, struct err *err)
{
    struct network_link *link = NULL;
    cleanup_close int fd = -1;
    cleanup_close int socket = -1;
    int r = open_link(s, policy, &link, &fd, err);
    if (r < 0)
        return r;
    (void)pthread_mutex_lock(&n->lock);
    n->is_answered = false;
    (void)pthread_mutex_unlock(&n->lock);
    r = send_channel(s, fd, &socket, err);
    close_fd(&fd);
    if (r == 0)
        r = await_answer(s, is_held, n, socket, err);
    if (r < 0) {
        close_late(link);
        network_link_unref(link);
        return r;
    }
    (void)pthread_mutex_lock(&n->lock);
    struct network_link *old = n->link;
    n->link = link;
    (void)pthread_mutex_unlock(&n->lock);
    network_link_unref(old);
    return 0;
}

/* The lock `changing` is held. */
static int change(struct session *s, bool is_held, struct session_network *n,
    const struct network_policy *policy, struct err *err)
{
    (void)pthread_mutex_lock(&n->lock);
    struct network_link *link = network_link_ref(n->link);
    (void)pthread_mutex_unlock(&n->lock);
    int r = 0;
    if (!link || network_link_is_over(link)) {
        r = policy ? give(s, is_held, n, policy, err) : 0;
    } else {
        cleanup_free struct network_policy *limited =
            policy ? network_policy_copy(policy) : network_policy_new(NETWORK_NONE);
        network_policy_limit(limited, &s->spec.limits);
        r = network_link_change(link, limited, err);
        if (r == 0) /* the caller that takes a network away relies on the answer */
            r = network_link_confirm(link, err);
    }
    network_link_unref(link);
    return r;
}

int session_network_apply(
    struct session *s, bool is_held, struct network_policy *policy, struct err *err)
{
    cleanup_free struct network_policy *taken = policy;
    (void)pthread_mutex_lock(&s->lock);
    struct session_network *n = session_network_ref(s->network);
    (void)pthread_mutex_unlock(&s->lock);
    int r = pthread_mutex_trylock(&n->changing);
    if (r != 0) {
        session_network_unref(n);
        return err_set(
            err, ERR_CONFLICT, EBUSY, "another request changes the network; try again");
    }
    r = change(s, is_held, n, taken, err);
    if (r == 0) {
        (void)pthread_mutex_lock(&n->lock);
        free(n->policy);
        n->policy = take_ptr(taken);
        (void)pthread_mutex_unlock(&n->lock);
    }
    (void)pthread_mutex_unlock(&n->changing);
    session_network_unref(n);
    return r;
}
