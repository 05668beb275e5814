/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Shared by the files of the core. */

#include "base/err.h"
#include "mcp/mcp.h"
#include "mcp/peer.h"

#include <pthread.h>

enum {
    MCP_SURFACES_MAX = 4,
    MCP_STATES_MAX = 1024,    /* states that wait for their client, of all keys */
    MCP_STATES_OF_KEY = 64,   /* of one key; the oldest is forgotten */
    MCP_LISTENERS_OF_KEY = 32 /* streams of changes of one key */
};

/* A state that was given to a client and has not come back. */
struct mcp_state_row {
    uint64_t number; /* 0: free */
    uint64_t nonce;
    int owner;
    int64_t expires_s;
};

/* The JSON of a surface, made once. */
struct mcp_lists {
    const struct mcp_surface *surface;
    json_t *tools;
    json_t *prompts;
    json_t *templates;
};

/* A receiver of changes: a standing stream, or a subscription of the stateless wire. */
struct mcp_listener {
    const struct mcp_surface *surface;
    int owner;
    bool tools, prompts, resources; /* changes of these lists */
    const json_t *uris;             /* object whose names are resources, or NULL; borrowed */
    const bool *is_greeted;         /* gets changes only while this is true; NULL: always */
    const json_t *id;               /* of the subscription, or NULL */
    mcp_sender *send;
    void *context;
    struct mcp_listener *next;
};

struct mcp {
    struct state *state;
    pthread_mutex_t lock; /* guards everything below; never held while something is sent,
                             except to listeners */
    struct mcp_lists lists[MCP_SURFACES_MAX];
    struct mcp_listener *listeners;
    struct mcp_peer *peers; /* sessions over HTTP */
    struct executions *executions;
    uint8_t secret[32];
    struct mcp_state_row states[MCP_STATES_MAX];
    uint64_t state_count;
    uint64_t asked; /* requests sent to clients */
    int (*open_engine)(struct state *state, struct err *err);
    pthread_mutex_t engine_lock;
    bool is_open;
    bool is_stopping;
};

const struct mcp_lists *mcp_lists_of(struct mcp *mcp, const struct mcp_surface *surface);

/* hub.c. -EBUSY when the key has too many. */
int mcp_listen(struct mcp *mcp, struct mcp_listener *listener);
void mcp_unlisten(struct mcp *mcp, struct mcp_listener *listener);

/* methods.c: one row per method. */
struct mcp_method {
    const char *name;
    bool is_legacy, is_modern;
    bool is_slow;
    bool has_ttl; /* its result says how long it may be kept */
    bool (*exists)(const struct mcp_surface *surface);
    mcp_handler *handle; /* gets params */
};
const struct mcp_method *mcp_method_find(const char *name);

/* The capabilities of a surface; the caller owns it. */
json_t *mcp_capabilities(const struct mcp_surface *surface);

/* schema.c: checks arguments against a tool's schema. NULL, or why they do not fit; the caller
 * frees it. Knows the words that our schemas use. */
char *mcp_schema_problem(const json_t *schema, const json_t *value);
