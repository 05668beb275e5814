/* SPDX-License-Identifier: Apache-2.0 */

/* The requestState that comes back from a client: no bytes but those that were given out are
 * taken, and those once. */

#include "mcp/internal.h"
#include "state/state.h"

#include <assert.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

const char *state_owner_name(const struct state *state, int owner)
{
    return "fuzz";
}

static int take(struct mcp_call *call, json_t *state, char what[ID_MAX])
{
    unsigned round;
    json_t *params = json_pack("{s:s, s:o}", "name", "tool", "requestState", state);
    call->message.params = params;
    int r = mcp_state_take(call, what, &round);
    mcp_error_done(&call->error);
    json_decref(params);
    return r;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct mcp mcp = {.lock = PTHREAD_MUTEX_INITIALIZER};
    static const struct mcp_surface surface = {.name = "fuzz"};
    struct mcp_call call = {.mcp = &mcp,
        .surface = &surface,
        .owner = 3,
        .message = {.kind = MCP_REQUEST, .method = "tools/call"}};
    char what[ID_MAX];
    json_t *first = json_pack("{s:s}", "name", "tool");
    call.message.params = first;
    char *given = mcp_state_make(&call, "exec_fuzz", 2);
    json_decref(first);
    json_t *state = json_stringn((const char *)data, size);
    if (!state)
        state = json_string("");
    assert(take(&call, state, what) < 0);
    /* One byte of the real one is changed. */
    size_t len = strlen(given);
    if (size >= 2 && data[0] < len && given[data[0]] != (char)data[1] && data[1] > ' ' &&
        data[1] < 127) {
        char kept = given[data[0]];
        given[data[0]] = (char)data[1];
        assert(take(&call, json_string(given), what) < 0);
        given[data[0]] = kept;
    }
    assert(take(&call, json_string(given), what) == 1 && strcmp(what, "exec_fuzz") == 0);
    assert(take(&call, json_string(given), what) < 0);
    free(given);
    return 0;
}
