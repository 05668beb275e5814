/* SPDX-License-Identifier: Apache-2.0 */

/* See peer.h. The lock of struct mcp guards the members of a peer. */

#include "mcp/internal.h"

#include "base/alloc.h"
#include "base/clock.h"
#include "base/str.h"
#include "state/state.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

enum {
    FORM_MS = 600000, /* for an answer to a question, as long as a requestState lasts */
    LOOK_MS = 200,    /* between two looks whether a question is moot */
    URI_COST = 128    /* bytes of a subscription besides its address */
};

struct mcp_peer {
    struct mcp *mcp;
    const struct mcp_surface *surface;
    int owner;
    unsigned refs;
    char id[ID_MAX];
    enum mcp_version version;
    json_t *capabilities;
    json_t *uris;       /* subscribed resources */
    struct purse purse; /* of their addresses */
    uint64_t used_ms;
    bool is_listed, is_ended, is_standing;
    bool is_greeted; /* the client has opened with a handshake */
    struct mcp_call *calls;
    unsigned call_count;
    struct mcp_question *questions;
    struct mcp_stream *streams[MCP_PEER_STREAMS]; /* by number, the oldest is replaced */
    uint64_t stream_count;
    struct mcp_listener listener;
    struct mcp_stream *standing;
    struct mcp_peer *next;
};

static void lock(const struct mcp_peer *peer)
{
    (void)pthread_mutex_lock(&peer->mcp->lock);
}

static void unlock(const struct mcp_peer *peer)
{
    (void)pthread_mutex_unlock(&peer->mcp->lock);
}

static void wake(int fd)
{
    uint64_t one = 1;
    ssize_t n = fd >= 0 ? write(fd, &one, sizeof(one)) : 0;
    (void)n;
}

struct mcp_peer *mcp_peer_new(struct mcp *mcp, const struct mcp_surface *surface, int owner)
{
    struct mcp_peer *peer = xcalloc(1, sizeof(*peer));
    *peer = (struct mcp_peer){.mcp = mcp,
        .surface = surface,
        .owner = owner,
        .refs = 1,
        .version = (enum mcp_version)MCP_NEWEST_LEGACY,
        .capabilities = json_object(),
        .uris = json_object(),
        .used_ms = clock_ms()};
    id_make("mcp_", peer->id);
    purse_open(&peer->purse, mcp->state->ledger, owner);
    return peer;
}

static void peer_free(struct mcp_peer *peer)
{
    for (size_t i = 0; i < MCP_PEER_STREAMS; i++)
        mcp_stream_unref(peer->streams[i]);
    mcp_stream_unref(peer->standing);
    json_decref(peer->capabilities);
    json_decref(peer->uris);
    purse_close(&peer->purse);
    free(peer);
}

void mcp_peer_unref(struct mcp_peer *peer)
{
    if (!peer)
        return;
    lock(peer);
    bool is_last = --peer->refs == 0;
    unlock(peer);
    if (is_last)
        peer_free(peer);
}

/* Finds a session to end: one that is idle for too long, or the longest idle one of a key
 * that has too many. NULL: none. The lock is held. */
static struct mcp_peer *find_superfluous(struct mcp *mcp, int owner)
{
    struct mcp_peer *oldest = NULL;
    unsigned count = 0;
    uint64_t now = clock_ms();
    for (struct mcp_peer *p = mcp->peers; p; p = p->next) {
        if (now - p->used_ms > (uint64_t)MCP_PEER_IDLE_S * 1000 && !p->calls && !p->is_standing)
            return p;
        if (p->owner != owner)
            continue;
        count++;
        if (!oldest || p->used_ms < oldest->used_ms)
            oldest = p;
    }
    return count > MCP_PEERS_OF_KEY ? oldest : NULL;
}

/* The same with a reference: another thread may end the session meanwhile, too. */
static struct mcp_peer *superfluous(struct mcp *mcp, int owner)
{
    (void)pthread_mutex_lock(&mcp->lock);
    struct mcp_peer *peer = find_superfluous(mcp, owner);
    if (peer)
        peer->refs++;
    (void)pthread_mutex_unlock(&mcp->lock);
    return peer;
}

struct mcp_peer *mcp_peer_first(struct mcp *mcp)
{
    (void)pthread_mutex_lock(&mcp->lock);
    struct mcp_peer *peer = mcp->peers;
    if (peer)
        peer->refs++;
    (void)pthread_mutex_unlock(&mcp->lock);
    return peer;
}

void mcp_peer_enlist(struct mcp_peer *peer)
{
    struct mcp *mcp = peer->mcp;
    struct mcp_peer *end;
    lock(peer);
    peer->refs++;
    peer->is_listed = true;
    peer->next = mcp->peers;
    mcp->peers = peer;
    unlock(peer);
    while ((end = superfluous(mcp, peer->owner))) {
        mcp_peer_end(end);
        mcp_peer_unref(end);
    }
}

struct mcp_peer *mcp_peer_find(
    struct mcp *mcp, const struct mcp_surface *surface, int owner, const char *id)
{
    (void)pthread_mutex_lock(&mcp->lock);
    struct mcp_peer *p = mcp->peers;
    while (p && !(p->owner == owner && p->surface == surface && str_eq(p->id, id)))
        p = p->next;
    if (p) {
        p->refs++;
        p->used_ms = clock_ms();
    }
    (void)pthread_mutex_unlock(&mcp->lock);
    return p;
}

static void cancel_calls(struct mcp_peer *peer)
{
    for (struct mcp_call *c = peer->calls; c; c = c->next)
        wake(c->cancel_fd);
}

void mcp_peer_end(struct mcp_peer *peer)
{
    struct mcp *mcp = peer->mcp;
    (void)pthread_mutex_lock(&mcp->lock);
    bool was_listed = peer->is_listed;
    struct mcp_peer **link = &mcp->peers;
    while (was_listed && *link != peer)
        link = &(*link)->next;
    if (was_listed)
        *link = peer->next;
    peer->is_listed = false;
    peer->is_ended = true;
    cancel_calls(peer);
    if (peer->standing)
        mcp_stream_end(peer->standing);
    (void)pthread_mutex_unlock(&mcp->lock);
    if (was_listed)
        mcp_peer_unref(peer);
}

const char *mcp_peer_id(const struct mcp_peer *peer)
{
    return peer->id;
}

enum mcp_version mcp_peer_version(const struct mcp_peer *peer)
{
    return peer->version;
}

const json_t *mcp_peer_capabilities(const struct mcp_peer *peer)
{
    return peer->capabilities;
}

/* Keeps the capabilities that the core asks for: two levels of names. The rest may have
 * megabytes, and a session keeps them for long. */
static json_t *brief(const json_t *capabilities)
{
    static const char *const names[] = {"elicitation", "sampling", "roots"};
    static const char *const modes[] = {"form", "url"};
    json_t *kept = json_object();
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        const json_t *one = json_object_get(capabilities, names[i]);
        if (!json_is_object(one))
            continue;
        json_t *copy = json_object();
        for (size_t k = 0; k < sizeof(modes) / sizeof(modes[0]); k++) {
            if (json_object_get(one, modes[k]))
                (void)json_object_set_new(copy, modes[k], json_object());
        }
        /* An empty object would say that the client shows forms. */
        if (json_object_size(one) && !json_object_size(copy))
            (void)json_object_set_new(copy, "other", json_object());
        (void)json_object_set_new(kept, names[i], copy);
    }
    return kept;
}

void mcp_peer_greet(struct mcp_peer *peer, enum mcp_version version, const json_t *params)
{
    const json_t *capabilities = json_object_get(params, "capabilities");
    lock(peer);
    peer->version = version;
    peer->is_greeted = true;
    if (json_is_object(capabilities)) {
        json_decref(peer->capabilities);
        peer->capabilities = brief(capabilities);
    }
    unlock(peer);
}

/* The calls of the key's sessions. The lock is held. */
static unsigned count_calls(const struct mcp *mcp, int owner)
{
    unsigned count = 0;
    for (const struct mcp_peer *p = mcp->peers; p; p = p->next)
        count += p->owner == owner ? p->call_count : 0;
    return count;
}

int mcp_peer_begin(struct mcp_peer *peer, struct mcp_call *call)
{
    lock(peer);
    /* A handshake is never refused for its key: it ends at once, and its session is not listed
     * yet. */
    bool is_full = peer->call_count >= MCP_PEER_CALLS ||
                   (peer->is_listed && count_calls(peer->mcp, peer->owner) >= MCP_CALLS_OF_KEY);
    int r = peer->is_ended || is_full ? -EBUSY : 0;
    if (r == 0) {
        peer->refs++;
        peer->call_count++;
        call->next = peer->calls;
        peer->calls = call;
    }
    unlock(peer);
    return r;
}

void mcp_peer_finish(struct mcp_peer *peer, struct mcp_call *call)
{
    lock(peer);
    struct mcp_call **link = &peer->calls;
    while (*link != call)
        link = &(*link)->next;
    *link = call->next;
    peer->call_count--;
    peer->used_ms = clock_ms();
    unlock(peer);
    mcp_peer_unref(peer);
}

void mcp_peer_cancel_all(struct mcp_peer *peer)
{
    bool is_busy = true;
    while (is_busy) {
        lock(peer);
        peer->is_ended = true;
        cancel_calls(peer);
        is_busy = peer->calls;
        unlock(peer);
        if (is_busy)
            (void)poll(NULL, 0, 10);
    }
}

/* Unknown ids are ignored: the answer may have crossed the message. */
static void cancel(struct mcp_peer *peer, const json_t *id)
{
    for (struct mcp_call *c = peer->calls; c && id; c = c->next) {
        if (json_equal(c->message.id, id))
            wake(c->cancel_fd);
    }
}

static void take_response(struct mcp_peer *peer, const struct mcp_message *m)
{
    const char *id = json_string_value(m->id);
    struct mcp_question *q = peer->questions;
    while (q && !str_eq(q->id, id))
        q = q->next;
    if (!q || q->result || q->error)
        return;
    q->result = m->result ? json_incref(m->result) : NULL;
    q->error = m->error ? json_deep_copy(m->error) : NULL;
    wake(q->fd);
}

void mcp_peer_take(struct mcp_peer *peer, const struct mcp_message *m)
{
    lock(peer);
    if (m->kind == MCP_RESPONSE)
        take_response(peer, m);
    else if (str_eq(m->method, "notifications/cancelled"))
        cancel(peer, json_object_get(m->params, "requestId"));
    unlock(peer);
}

int mcp_peer_ask(struct mcp_peer *peer, struct mcp_question *question, const char *id)
{
    *question = (struct mcp_question){.fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)};
    if (question->fd < 0)
        return -errno;
    (void)snprintf(question->id, sizeof(question->id), "%s", id);
    lock(peer);
    question->next = peer->questions;
    peer->questions = question;
    unlock(peer);
    return 0;
}

int mcp_peer_hear(struct mcp_peer *peer, struct mcp_question *question, int cancel_fd,
    mcp_moot *is_moot, void *context, json_t **ret, struct mcp_error *error)
{
    struct pollfd fds[] = {{question->fd, POLLIN, 0}, {cancel_fd, POLLIN, 0}};
    uint64_t until_ms = clock_ms() + FORM_MS;
    int count = 0;
    bool is_over = false;
    while (count <= 0 && !is_over && clock_ms() < until_ms) {
        count = poll(fds, 2, LOOK_MS);
        is_over = count <= 0 && is_moot && is_moot(context);
    }
    lock(peer);
    struct mcp_question **link = &peer->questions;
    while (*link != question)
        link = &(*link)->next;
    *link = question->next;
    unlock(peer);
    (void)close(question->fd);
    if (json_is_object(question->result)) {
        *ret = question->result;
        return 0;
    }
    bool is_answered = question->result || question->error;
    const char *why = mcp_text(question->error, "message", 300);
    if (is_answered)
        (void)mcp_fail(error, MCP_INTERNAL, "the client did not answer the question: %s",
            why ? why : "it sent no object");
    else if (count <= 0 && !is_over)
        (void)mcp_fail(error, MCP_INTERNAL, "the client did not answer the question in time");
    json_decref(question->result);
    json_decref(question->error);
    return is_answered ? -EINVAL : is_over ? -EALREADY : count <= 0 ? -EINVAL : -ECANCELED;
}

int mcp_peer_subscribe(struct mcp_peer *peer, const char *uri, bool on)
{
    lock(peer);
    bool is_known = json_object_get(peer->uris, uri);
    size_t weight = strlen(uri) + URI_COST;
    int r = 0;
    if (on && !is_known && json_object_size(peer->uris) >= MCP_PEER_SUBSCRIPTIONS)
        r = -EBUSY;
    else if (on && !is_known && !purse_take(&peer->purse, weight))
        r = -ENOMEM;
    else if (on)
        (void)json_object_set_new(peer->uris, uri, json_true());
    else if (is_known && json_object_del(peer->uris, uri) == 0)
        purse_give(&peer->purse, weight);
    unlock(peer);
    return r;
}

struct mcp_stream *mcp_peer_stream(struct mcp_peer *peer)
{
    lock(peer);
    uint64_t number = ++peer->stream_count;
    struct mcp_stream *stream = mcp_stream_new(number, peer->mcp->state->ledger, peer->owner);
    struct mcp_stream *old = peer->streams[number % MCP_PEER_STREAMS];
    peer->streams[number % MCP_PEER_STREAMS] = mcp_stream_ref(stream);
    unlock(peer);
    mcp_stream_unref(old);
    return stream;
}

struct mcp_stream *mcp_peer_resume(
    struct mcp_peer *peer, const char *event_id, uint64_t *ret_after)
{
    char text[48];
    uint64_t number;
    (void)snprintf(text, sizeof(text), "%s", event_id);
    char *dash = strchr(text, '-');
    if (!dash)
        return NULL;
    *dash = '\0';
    if (str_parse_u64(text, &number) < 0 || str_parse_u64(dash + 1, ret_after) < 0)
        return NULL;
    lock(peer);
    struct mcp_stream *stream = peer->streams[number % MCP_PEER_STREAMS];
    stream = stream && mcp_stream_number(stream) == number ? mcp_stream_ref(stream) : NULL;
    unlock(peer);
    return stream;
}

static struct mcp_listener listener_of(
    const struct mcp_peer *peer, mcp_sender *send, void *context)
{
    return (struct mcp_listener){.surface = peer->surface,
        .owner = peer->owner,
        .tools = true,
        .prompts = true,
        .resources = true,
        .uris = peer->uris,
        .is_greeted = &peer->is_greeted,
        .send = send,
        .context = context};
}

void mcp_peer_hears(struct mcp_peer *peer, mcp_sender *send, void *context)
{
    peer->listener = listener_of(peer, send, context);
    (void)mcp_listen(peer->mcp, &peer->listener);
}

void mcp_peer_deaf(struct mcp_peer *peer)
{
    mcp_unlisten(peer->mcp, &peer->listener);
}

static void send_standing(void *context, const json_t *message)
{
    mcp_stream_put(context, message);
}

int mcp_peer_stand(struct mcp_peer *peer, struct mcp_stream **ret)
{
    lock(peer);
    bool is_free = !peer->is_standing && !peer->is_ended;
    peer->is_standing = true;
    unlock(peer);
    if (!is_free)
        return -EBUSY;
    struct mcp_stream *stream = mcp_peer_stream(peer);
    peer->listener = listener_of(peer, send_standing, stream);
    int r = mcp_listen(peer->mcp, &peer->listener);
    lock(peer);
    peer->standing = r == 0 ? stream : NULL;
    peer->is_standing = r == 0;
    unlock(peer);
    if (r < 0)
        mcp_stream_unref(stream);
    else
        *ret = mcp_stream_ref(stream);
    return r;
}

void mcp_peer_sit(struct mcp_peer *peer)
{
    mcp_unlisten(peer->mcp, &peer->listener);
    lock(peer);
    struct mcp_stream *stream = peer->standing;
    peer->standing = NULL;
    peer->is_standing = false;
    unlock(peer);
    mcp_stream_unref(stream);
}
