/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The tools that code run by `execute` can call, by their address: `tools.search(...)` has the
 * address "search". Built-in tools are rows of a table. Tools of connected servers will be rows
 * that a connection brings along; docs/mcp.md describes the seam. */

#include <jansson.h>
#include <stdbool.h>

/* A tool. Built-in tools only read, so their calls need no approval. */
struct catalog_row {
    const char *path;
    const char *name;
    const char *integration;
    const char *description;
    const char *input_type; /* TypeScript */
    const char *output_type;
    json_t *(*call)(const json_t *input); /* the value that the code gets */
};

/* The row of this address, or NULL. */
const struct catalog_row *catalog_find(const char *path);

/* Calls a tool for code. The caller owns the value. An address that does not exist is a value
 * {ok: false, error: {code: "tool_not_found", message, suggestions}}. */
json_t *catalog_call(const char *path, const json_t *input);
