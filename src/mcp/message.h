/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Messages of JSON-RPC 2.0, as MCP uses them: reading messages of strangers, and making our
 * own. */

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

enum mcp_code {
    MCP_PARSE = -32700,      /* not JSON */
    MCP_INVALID = -32600,    /* not a request */
    MCP_NO_METHOD = -32601,  /* no such method */
    MCP_PARAMS = -32602,     /* wrong params, also an unknown tool, cursor or resource */
    MCP_INTERNAL = -32603,   /* Hermes failed */
    MCP_HEADER = -32020,     /* a header and the body differ */
    MCP_CAPABILITY = -32021, /* the client did not declare what the call needs */
    MCP_VERSION = -32022,    /* a version that we do not speak */
    MCP_NO_SESSION = -32001, /* the legacy HTTP transport: session or key */
    MCP_NO_RESOURCE = -32002 /* "resource not found" before 2026-07-28 */
};

struct mcp_error {
    int code;           /* 0: none */
    char message[512];  /* what happened and what to do next */
    json_t *data;       /* or NULL; owned */
    unsigned http_code; /* status of the HTTP reply; 0: 200 */
};
void mcp_error_done(struct mcp_error *error);

/* Sets the error and returns -EINVAL. */
int mcp_fail(struct mcp_error *error, int code, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
/* The same, for an error that has a status of its own over HTTP. */
int mcp_fail_http(struct mcp_error *error, unsigned http_code, int code, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));

enum mcp_kind { MCP_REQUEST, MCP_NOTIFICATION, MCP_RESPONSE };

enum { MCP_ID_MAX = 256, MCP_METHOD_MAX = 128, MCP_BATCH_MAX = 64 };

/* A message that was read. Everything points into the value it was made from. */
struct mcp_message {
    enum mcp_kind kind;
    json_t *id;           /* of a request or response; NULL of a response without one */
    const char *method;   /* of a request or notification */
    const json_t *params; /* an object, or NULL */
    const json_t *meta;   /* params._meta, an object, or NULL */
    json_t *result;       /* of a response that has no error */
    const json_t *error;  /* of a response that has no result */
};

/* Parses a text: bounded, no duplicate names. MCP_PARSE. The caller owns *ret. */
int mcp_parse(const char *text, size_t len, json_t **ret, struct mcp_error *error);

/* Reads one message. MCP_INVALID when it is not a message, MCP_PARAMS when its params are not
 * an object; ret->id is set whenever it could be read. */
int mcp_message_read(json_t *value, struct mcp_message *ret, struct mcp_error *error);

/* A member that is a string without NUL of at most `max` bytes, else NULL. */
const char *mcp_text(const json_t *object, const char *name, size_t max);

/* Messages to a client; the caller owns them. mcp_result() takes `result`. An error without an
 * id answers a message whose id could not be read. */
json_t *mcp_result(json_t *id, json_t *result);
json_t *mcp_error_message(json_t *id, const struct mcp_error *error);
json_t *mcp_notification(const char *method, json_t *params); /* takes params */
