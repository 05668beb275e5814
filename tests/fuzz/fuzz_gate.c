/* SPDX-License-Identifier: Apache-2.0 */

/* The first look at a request: targets, header lines, routes. */

#include "api/gate.h"
#include "api/routes.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

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
    const struct route *route = route_find("GET", text, len, params, allow, sizeof(allow));
    if (route && strstr(route->path, "{id}") && strchr(params[0], '/'))
        abort();
    size_t half = len / 2;
    if (gate_header_ok(text, half, text + half, len - half) && memchr(text, '\n', len))
        abort();
    free(text);
    return 0;
}
