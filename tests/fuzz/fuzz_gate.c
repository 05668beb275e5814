/* SPDX-License-Identifier: Apache-2.0 */

/* Targets, routes, Host and Origin. fuzz_wire.c has the reader of requests. */

#include "http/compat/pydantic.h"
#include "http/origin.h"
#include "http/routes.h"
#include "http/wire.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

/* Routes need handlers; none is called here. */
#define STUB(name)                                                                             \
    int name(struct http_request *req, struct http_reply *reply, struct err *err)              \
    {                                                                                          \
        abort();                                                                               \
    }
STUB(handle_run_create)
STUB(handle_run_get)
STUB(handle_run_delete)
STUB(handle_run_events)
STUB(handle_run_list)
STUB(handle_run_request)
STUB(handle_run_stdin)
STUB(handle_session_variables)
STUB(handle_session_change)
STUB(handle_status)
STUB(handle_events)
STUB(handle_keys)
STUB(handle_selftest)
STUB(handle_judge_create)
STUB(handle_runner_run)
STUB(handle_runner_images)
STUB(handle_runner_prebuild)
STUB(handle_runner_prebuilds)
STUB(handle_runner_cleanup)
STUB(handle_session_create)
STUB(handle_session_list)
STUB(handle_session_get)
STUB(handle_session_delete)
STUB(handle_session_exec)
STUB(handle_session_interrupt)
STUB(handle_session_reset)
STUB(handle_session_jobs)
STUB(handle_session_kill_job)
STUB(handle_session_tool_results)
STUB(handle_session_terminal)
STUB(handle_session_fork)
STUB(handle_session_checkpoint)
STUB(handle_session_checkpoints)
STUB(handle_session_checkpoint_delete)
STUB(handle_session_rollback)
STUB(handle_file_list)
STUB(handle_file_get)
STUB(handle_file_put)
STUB(handle_file_delete)
STUB(handle_file_archive)
STUB(handle_root)
STUB(handle_health)
STUB(handle_version)
STUB(handle_metrics)
STUB(handle_runtimes)
STUB(handle_report)
STUB(handle_openapi)
STUB(handle_execute)
STUB(handle_execute_files)
STUB(handle_approval_decide)
STUB(handle_approval_events)
STUB(handle_approval_get)
STUB(handle_approval_grants)
STUB(handle_approval_list)
STUB(handle_approval_log)
STUB(handle_approval_revoke)
STUB(handle_approval_rules)
STUB(handle_approval_set_rules)
STUB(handle_backend_list)
STUB(handle_image_create)
STUB(handle_image_delete)
STUB(handle_image_export)
STUB(handle_image_get)
STUB(handle_image_import)
STUB(handle_image_list)
STUB(handle_mcp_delete)
STUB(handle_mcp_get)
STUB(handle_mcp_post)
STUB(handle_runner_prebuilt_delete)
STUB(handle_runner_prebuilt_get)
STUB(handle_session_commit)
STUB(handle_session_packages)
#define STUB_REFUSAL(name)                                                                     \
    void name(struct http_reply *reply, const struct err *err)                                 \
    {                                                                                          \
        abort();                                                                               \
    }
STUB_REFUSAL(refuse_execute)
STUB_REFUSAL(refuse_mcp)
STUB_REFUSAL(refuse_execute_files)
STUB_REFUSAL(fastapi_error)

/* Half of it as a list, as Host and as Origin: a name of ours has no byte that could end it
 * early, and a page of ours has its scheme. */
static void check_names(const char *text)
{
    const char *rest = text + strlen(text) / 2;
    (void)origin_is_listed(text, rest);
    if (host_is_ours(text, rest) && strpbrk(text, "@/?#\\% \t\r\n,"))
        abort();
    if (origin_is_host(text, rest) && strncasecmp(text, "http", 4) != 0)
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *text = malloc(size + 1);
    char params[HTTP_MAX_PARAMS][HTTP_PARAM_MAX];
    char allow[64];
    struct err err = {0};
    memcpy(text, data, size);
    text[size] = '\0';
    size_t len = strlen(text);
    if (wire_check_target(text, &err) == 0 && (text[0] != '/' || strpbrk(text, " \r\n")))
        abort();
    const char *rest;
    const struct route *route =
        route_find("GET", text, len, params, &rest, allow, sizeof(allow));
    if (route && strstr(route->path, "{id}") && strchr(params[0], '/'))
        abort();
    check_names(text);
    free(text);
    return 0;
}
