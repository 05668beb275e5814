/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Clients that open with a handshake: a session over HTTP, or the client on stdio. A session
 * belongs to the key that opened it. Nothing valuable hangs on it: clients drop sessions
 * between two calls, and executions belong to the key. */

#include "mcp/mcp.h"
#include "mcp/stream.h"

enum {
    MCP_PEERS_OF_KEY = 64,       /* sessions of one key; the one idle longest ends */
    MCP_PEER_IDLE_S = 30 * 60,   /* without a request */
    MCP_PEER_STREAMS = 16,       /* streams kept for a client that comes back */
    MCP_PEER_CALLS = 64,         /* requests under way */
    MCP_CALLS_OF_KEY = 256,      /* the same, in all sessions of a key */
    MCP_PEER_SUBSCRIPTIONS = 256 /* resources */
};

/* Opens a session from the params of `initialize` over HTTP, or the client of stdio. The caller
 * owns a reference. */
struct mcp_peer *mcp_peer_new(struct mcp *mcp, const struct mcp_surface *surface, int owner);

/* Puts a session where mcp_peer_find() finds it. */
void mcp_peer_enlist(struct mcp_peer *peer);

/* The session of this key and surface, or NULL. The caller owns a reference. */
struct mcp_peer *mcp_peer_find(
    struct mcp *mcp, const struct mcp_surface *surface, int owner, const char *id);

/* Any session, or NULL when there is none. The caller owns a reference. */
struct mcp_peer *mcp_peer_first(struct mcp *mcp);
void mcp_peer_unref(struct mcp_peer *peer); /* accepts NULL */

/* Ends a session: its calls are cancelled. */
void mcp_peer_end(struct mcp_peer *peer);

const char *mcp_peer_id(const struct mcp_peer *peer);
enum mcp_version mcp_peer_version(const struct mcp_peer *peer);
const json_t *mcp_peer_capabilities(const struct mcp_peer *peer);

/* The handshake: chooses the version and keeps what the client can do. */
void mcp_peer_greet(struct mcp_peer *peer, enum mcp_version version, const json_t *params);

/* A call begins and ends. -EBUSY when too many are under way. */
int mcp_peer_begin(struct mcp_peer *peer, struct mcp_call *call);
void mcp_peer_finish(struct mcp_peer *peer, struct mcp_call *call);

/* Takes a notification or a response of the client. */
void mcp_peer_take(struct mcp_peer *peer, const struct mcp_message *m);

/* Cancels everything and waits until no call is left. */
void mcp_peer_cancel_all(struct mcp_peer *peer);

/* A request of the server to the client. mcp_peer_ask() notes it, mcp_peer_hear() waits for the
 * result, which the caller owns, and forgets it. -ECANCELED when cancel_fd becomes readable;
 * -EALREADY when is_moot() (may be NULL) is true. After ten minutes without a result the
 * request has failed. */
struct mcp_question {
    char id[ID_MAX];
    int fd; /* eventfd: answered */
    json_t *result;
    json_t *error;
    struct mcp_question *next;
};
int mcp_peer_ask(struct mcp_peer *peer, struct mcp_question *question, const char *id);
int mcp_peer_hear(struct mcp_peer *peer, struct mcp_question *question, int cancel_fd,
    mcp_moot *is_moot, void *context, json_t **ret, struct mcp_error *error);

/* Resources that the client subscribed to. */
int mcp_peer_subscribe(struct mcp_peer *peer, const char *uri, bool on);

/* Streams of a session, so that a client can come back to one. mcp_peer_stream() makes one; the
 * caller owns a reference. mcp_peer_resume() finds the stream of an event id, and sets the
 * number of the event. mcp_peer_stand() opens the one standing stream: -EBUSY when there is
 * one. */
struct mcp_stream *mcp_peer_stream(struct mcp_peer *peer);
struct mcp_stream *mcp_peer_resume(
    struct mcp_peer *peer, const char *event_id, uint64_t *ret_after);
/* Tells a client that has no streams of changes, through this function. */
void mcp_peer_hears(struct mcp_peer *peer, mcp_sender *send, void *context);
void mcp_peer_deaf(struct mcp_peer *peer);
int mcp_peer_stand(struct mcp_peer *peer, struct mcp_stream **ret);
void mcp_peer_sit(struct mcp_peer *peer);
