/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The full surface: what the REST API offers, as tools. Bodies are those of the API and go
 * through the same decoders; sessions and executions belong to the key. */

#include "mcp/mcp.h"

extern const struct mcp_surface mcp_full_surface;

/* full_work.c: work that can take long. */
mcp_handler full_run_code, full_shell, full_session_exec, full_judge, full_wait;

/* full_session.c */
mcp_handler full_session_create, full_session_fork, full_session_checkpoint,
    full_session_rollback, full_session_close;

/* full_files.c: files of sessions as tools and as resources. */
mcp_handler full_read_file, full_write_file, full_list_files;
int full_list_resources(
    struct mcp_call *call, size_t first, size_t most, json_t **ret, bool *ret_more);
int full_read_resource(struct mcp_call *call, const char *uri, json_t **ret);
int full_complete(struct mcp_call *call, const char *ref, const char *argument,
    const char *value, json_t **ret);

/* The session that the arguments name, or NULL with the result that says so. The caller owns a
 * reference. */
struct session *full_find_session(struct mcp_call *call, const json_t *arguments, json_t **ret);

/* The resource of a file below /box; the caller frees it. */
char *full_uri(const char *session_id, const char *path);

/* A result whose text is an object of the API, for models and programs alike; takes it. */
json_t *full_object(json_t *object);
