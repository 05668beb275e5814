/* SPDX-License-Identifier: Apache-2.0 */

/* Messages of MCP clients: any bytes are refused or become a message whose parts are as
 * promised, and our error about them can be sent. */

#include "mcp/message.h"

#include <assert.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(json_t *value)
{
    struct mcp_error error = {0};
    struct mcp_message m;
    int r = mcp_message_read(value, &m, &error);
    assert((r == 0) == (error.code == 0));
    assert(!m.id || json_is_string(m.id) || json_is_integer(m.id));
    if (r == 0 && m.kind != MCP_RESPONSE)
        assert(m.method && strlen(m.method) <= MCP_METHOD_MAX);
    if (r == 0)
        assert(!m.params || json_is_object(m.params));
    json_t *message =
        r == 0 && m.id ? mcp_result(m.id, json_object()) : mcp_error_message(m.id, &error);
    char *text = json_dumps(message, JSON_COMPACT);
    assert(text && !strchr(text, '\n'));
    free(text);
    json_decref(message);
    mcp_error_done(&error);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct mcp_error error = {0};
    json_t *value = NULL;
    if (mcp_parse((const char *)data, size, &value, &error) == 0) {
        check(value);
        for (size_t i = 0; i < json_array_size(value); i++)
            check(json_array_get(value, i));
    } else {
        assert(error.code == MCP_PARSE && error.http_code == 400);
    }
    json_decref(value);
    mcp_error_done(&error);
    return 0;
}
