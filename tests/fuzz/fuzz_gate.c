/* SPDX-License-Identifier: Apache-2.0 */

/* The first look at a request: target, header lines, routes. What is let through cannot be read
 * in two ways: one Host, one length or chunked. */

#include "http/compat/pydantic.h"
#include "http/gate.h"
#include "http/origin.h"
#include "http/routes.h"

#include <microhttpd.h>
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
#define STUB_REFUSAL(name)                                                                     \
    void name(struct http_reply *reply, const struct err *err)                                 \
    {                                                                                          \
        abort();                                                                               \
    }
STUB_REFUSAL(refuse_execute)
STUB_REFUSAL(refuse_execute_files)
STUB_REFUSAL(fastapi_error)

/* The lines of the input stand for the headers that the library found. */
static const char *lines;

int MHD_get_connection_values_n(struct MHD_Connection *connection, enum MHD_ValueKind kind,
    MHD_KeyValueIteratorN iterator, void *context)
{
    int count = 0;
    for (const char *at = lines; *at;) {
        size_t len = strcspn(at, "\n");
        const char *colon = memchr(at, ':', len);
        size_t name_len = colon ? (size_t)(colon - at) : len;
        size_t skip = colon ? name_len + 1 : len;
        char name[256] = {0};
        char value[256] = {0};
        memcpy(name, at, name_len < 255 ? name_len : 255);
        memcpy(value, at + skip, len - skip < 255 ? len - skip : 255);
        count++;
        if (iterator(context, kind, name, strlen(name), colon ? value : NULL,
                colon ? strlen(value) : 0) != MHD_YES)
            break;
        at += len + (at[len] == '\n');
    }
    return count;
}

struct seen {
    unsigned hosts, lengths, codings;
    bool plain_length, plain_coding, is_zero;
};

static enum MHD_Result see(void *context, enum MHD_ValueKind kind, const char *name,
    size_t name_len, const char *value, size_t value_len)
{
    struct seen *seen = context;
    const char *text = value ? value : "";
    seen->hosts += strcasecmp(name, "Host") == 0;
    if (strcasecmp(name, "Content-Length") == 0) {
        seen->lengths++;
        seen->is_zero = value_len == strspn(text, "0");
        seen->plain_length = value_len && value_len == strspn(text, "0123456789");
    }
    if (strcasecmp(name, "Transfer-Encoding") == 0) {
        seen->codings++;
        seen->plain_coding = strcasecmp(text, "chunked") == 0;
    }
    return MHD_YES;
}

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

/* Splits off the target, "1.0" or "1.1", then headers. */
static void check_request(char *text)
{
    struct http_request req = {0};
    struct err err = {0};
    struct seen seen = {0};
    char *rest = strchr(text, '\n');
    if (!rest)
        return;
    *rest++ = '\0';
    req.target = text;
    bool is_1_0 = *rest == '0';
    lines = rest;
    if (gate_check(&req, is_1_0 ? "HTTP/1.0" : "HTTP/1.1", &err) < 0) {
        if (!err.message[0])
            abort();
        return;
    }
    (void)MHD_get_connection_values_n(NULL, MHD_HEADER_KIND, see, &seen);
    if (seen.hosts > 1 || (!is_1_0 && seen.hosts == 0) || seen.lengths + seen.codings > 1 ||
        (seen.lengths && !seen.plain_length) || (seen.codings && !seen.plain_coding) ||
        (is_1_0 && seen.codings) ||
        req.declares_body != (seen.lengths + seen.codings == 1 && !seen.is_zero))
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
    if (gate_check_target(text, &err) == 0 && (text[0] != '/' || strpbrk(text, " \r\n")))
        abort();
    const char *rest;
    const struct route *route =
        route_find("GET", text, len, params, &rest, allow, sizeof(allow));
    if (route && strstr(route->path, "{id}") && strchr(params[0], '/'))
        abort();
    size_t half = len / 2;
    if (gate_header_ok(text, half, text + half, len - half) && memchr(text, '\n', len))
        abort();
    check_names(text);
    check_request(text);
    free(text);
    return 0;
}
