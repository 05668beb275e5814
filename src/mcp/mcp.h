/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The Model Context Protocol, both eras: the handshake wire (2025-03-26 to 2025-11-25) and the
 * stateless one (2026-07-28). This core knows no transport. A transport reads a message, makes
 * a struct mcp_call, lets mcp_answer() work on it and sends what comes back. What a server
 * offers is a table, struct mcp_surface.
 *
 * Any thread may call any function. A call belongs to one thread; mcp_send() may be called from
 * several. */

#include "base/err.h"
#include "base/id.h"
#include "mcp/message.h"

#include <stdint.h>

struct execution;
struct mcp;
struct mcp_call;
struct mcp_peer;
struct state;

enum mcp_version { MCP_2025_03_26, MCP_2025_06_18, MCP_2025_11_25, MCP_2026_07_28 };
enum { MCP_NEWEST_LEGACY = MCP_2025_11_25, MCP_VERSIONS = MCP_2026_07_28 + 1 };
extern const char *const mcp_version_names[MCP_VERSIONS];

/* The version of this name, or -1. */
int mcp_version_find(const char *name);

/* Names in _meta of the stateless wire. */
#define MCP_META "io.modelcontextprotocol/"

/* Fills in *ret, the value `result` of the response, and returns 0; or sets call->error and
 * returns negative errno. -ECANCELED: the client has cancelled the call. */
typedef int mcp_handler(struct mcp_call *call, const json_t *arguments, json_t **ret);

struct mcp_tool {
    const char *name;
    const char *title;
    const char *description;
    const char *input_schema;  /* JSON. With additionalProperties false, it is enforced */
    const char *output_schema; /* JSON, or NULL */
    const char *annotations;   /* JSON, or NULL */
    bool streams;              /* messages may come before the answer, also without a token */
    bool needs_engine;
    mcp_handler *call;
};

struct mcp_prompt {
    const char *name;
    const char *title;
    const char *description;
    const char *arguments; /* JSON list, or NULL */
    mcp_handler *get;
};

/* What a server offers. Members without a value are not offered, and their methods do not
 * exist. Lists come in the order of the tables. */
struct mcp_surface {
    const char *name; /* of the server */
    const char *title;
    const char *instructions;
    const struct mcp_tool *tools;
    size_t tool_count;
    const struct mcp_prompt *prompts;
    size_t prompt_count;
    /* Resources: `list` returns a list from the item `first` on, and says whether more follow;
     * `read` returns the list `contents`. */
    int (*list_resources)(
        struct mcp_call *call, size_t first, size_t most, json_t **ret, bool *ret_more);
    const char *templates; /* JSON list */
    int (*read_resource)(struct mcp_call *call, const char *uri, json_t **ret);
    bool has_wait; /* work that goes on is waited for with `wait`, not `resume` */
    /* Tells when these lists change; with resources, also when one of them changes. */
    bool tools_change, prompts_change, resources_change;
    bool has_logging;
    /* Fills in the list of values for an argument of a prompt or template. */
    int (*complete)(struct mcp_call *call, const char *ref, const char *argument,
        const char *value, json_t **ret);
};

/* The surface of a path, "/mcp" or "/mcp/full"; NULL when there is none. The product and the
 * fixture of the tests each have their own. */
const struct mcp_surface *mcp_surface_at(const char *path, size_t len);

/* --- the server's side of all clients */

/* Lives as long as the program. */
struct mcp *mcp_new(struct state *state);

/* Ends executions and streams. Call before service_close(). */
void mcp_stop(struct mcp *mcp);

struct state *mcp_state(const struct mcp *mcp);

/* With a function here, the engine is opened with the first call that needs it. */
void mcp_on_engine(struct mcp *mcp, int (*open)(struct state *state, struct err *err));

/* --- one request */

/* Delivers a message that the server sends before the answer. */
typedef void mcp_sender(void *context, const json_t *message);

struct mcp_call {
    struct mcp *mcp;
    const struct mcp_surface *surface;
    struct mcp_peer *peer; /* a client with a handshake, or the one on stdio; else NULL */
    int owner;             /* index of the key, -1 for none */
    enum mcp_version version;
    struct mcp_message message;
    const json_t *capabilities; /* of the client; borrowed, or NULL */
    const struct mcp_tool *tool;
    int cancel_fd; /* readable when the client does not want the answer any more; -1: never */
    mcp_sender *send;
    void (*hang_up)(void *context, unsigned retry_ms); /* or NULL */
    void *context;
    double progress; /* last value sent */
    struct mcp_error error;
    struct mcp_call *next; /* in the peer's list of calls under way */
};

static inline bool mcp_is_modern(const struct mcp_call *call)
{
    return call->version == MCP_2026_07_28;
}

/* Headers of an HTTP request that the stateless wire repeats. */
struct mcp_headers {
    const char *version;
    const char *method;
    const char *name;
    const char *(*get)(const void *context, const char *name);
    const void *context;
};

/* Whether a message belongs to the stateless wire; `version` is that of the header, or NULL. */
bool mcp_message_is_modern(const struct mcp_message *m, const char *version);

/* Checks a request of the stateless wire, in the order that the revision asks for. `headers` is
 * NULL on stdio. Sets call->version and call->capabilities. */
int mcp_check_modern(struct mcp_call *call, const struct mcp_headers *headers);

/* Whether messages may come before the answer, so that it needs a stream. */
bool mcp_streams(struct mcp_call *call);

/* Whether the request may take long: on stdio it gets a thread of its own. */
bool mcp_is_slow(const struct mcp_message *m);

/* Does what the request asks for. Returns the response, which the caller owns, or NULL when the
 * call was cancelled. */
json_t *mcp_answer(struct mcp_call *call);

/* --- for handlers */

/* Sends a message; takes it. */
void mcp_send(struct mcp_call *call, json_t *message);

/* Ends the connection of the stream, if the client can come back to it: it polls. */
void mcp_hang_up(struct mcp_call *call, unsigned retry_ms);

/* Sends progress if the client asked for it; `message` may be NULL. */
void mcp_progress(struct mcp_call *call, double progress, double total, const char *message);
bool mcp_wants_progress(const struct mcp_call *call);

/* Sends a log message if the client wants those of this level. */
void mcp_log(struct mcp_call *call, const char *level, const char *logger, const char *text);

/* Whether the client declared a capability, "elicitation" or "sampling". */
bool mcp_can(const struct mcp_call *call, const char *capability);

/* Whether the client can be asked by form in this call. */
bool mcp_can_elicit(const struct mcp_call *call);

/* Fails with MCP_CAPABILITY when it was not declared. */
int mcp_need(struct mcp_call *call, const char *capability);

/* The handshake wire: sends a request to the client and waits for its result, which the caller
 * owns. Takes params. -ECANCELED, or call->error. `is_moot` (or NULL) is asked now and then:
 * once it is true, the request is taken back and the result is -EALREADY. */
typedef bool mcp_moot(void *context);
int mcp_ask(struct mcp_call *call, const char *method, json_t *params, mcp_moot *is_moot,
    void *context, json_t **ret);

/* Waits until cancel_fd or fd is readable, or for timeout_ms: -ECANCELED, 1 or 0. */
int mcp_wait(const struct mcp_call *call, int fd, int timeout_ms);

/* The result of a tool: one text, an object for programs (or NULL; taken). */
json_t *mcp_text_result(const char *text, size_t len, json_t *structured, bool is_error);
json_t *mcp_content_text(const char *text, size_t len);

/* The result of a tool that failed: the text of err. */
json_t *mcp_tool_error(const struct err *err);

/* Opens the engine if that is still to be done. */
int mcp_need_engine(struct mcp *mcp, struct err *err);

/* Tells clients of this surface and owner about a change: `kind` is "tools", "prompts" or
 * "resources" with a NULL uri, or an updated resource with its uri. owner -2: all owners. */
enum { MCP_ALL_OWNERS = -2 };
void mcp_changed(struct mcp *mcp, const struct mcp_surface *surface, int owner,
    const char *kind, const char *uri);

/* --- requestState of the stateless wire (request_state.c) */

/* Makes a state for this call: bound to the caller, the tool or prompt, the arguments, `what`
 * (an execution, or any text) and `round`; it can be used once. The caller frees it. */
char *mcp_state_make(struct mcp_call *call, const char *what, unsigned round);

/* Takes the state that the client sent back: 1 and what it is bound to, 0 when the client sent
 * none, or an error for a state that is forged, used before, too old or of another call. */
int mcp_state_take(struct mcp_call *call, char ret_what[ID_MAX], unsigned *ret_round);

/* The result that asks the client for input; takes both. */
json_t *mcp_input_required(json_t *requests, char *state);

/* The client's answer to the input request `name`, or NULL. */
const json_t *mcp_input(const struct mcp_call *call, const char *name);

/* Executions (execution.h) of this process. */
struct executions *mcp_executions(struct mcp *mcp);
