/* SPDX-License-Identifier: Apache-2.0 */

/* What Hermes offers: the default surface, with exactly `execute` and `resume`, and the full
 * one (full.h). */

#include "mcp/execute.h"
#include "mcp/execution/execution.h"
#include "mcp/full.h"

#include "base/str.h"

#include <string.h>

static const struct mcp_tool default_tools[] = {
    {"execute", "Execute code",
        "Runs code in a fresh sandbox without network and returns its value and logs. The code "
        "is the body of an async function, in TypeScript or JavaScript (default) or Python: "
        "`return` gives the value. console.log or print add to the logs; emit(x) shows an "
        "image or text. fetch does not work; outside services are reached through `tools`.\n"
        "Workflow: 1. `return await tools.search({ query: \"words\" })` finds tools. 2. "
        "`return await tools.describe.tool({ path })` tells how to call one. 3. call it by its "
        "path, `await tools.a.b.c({ ... })`; the value is { ok: true, data } or { ok: false, "
        "error }. `tools.executor.coreTools.connections.list({})` lists connected accounts.\n"
        "Work of more than 50 seconds answers { status: \"running\", executionId }; resume "
        "waits for it. A call that needs a person's decision answers { status: "
        "\"waiting_for_interaction\", executionId, interaction }.",
        "{\"type\":\"object\",\"properties\":{"
        "\"code\":{\"type\":\"string\",\"minLength\":1,\"description\":\"Body of an async "
        "function.\"},"
        "\"language\":{\"type\":\"string\",\"enum\":[\"javascript\",\"typescript\",\"python\"],"
        "\"description\":\"Language of the code; javascript also takes TypeScript.\"}},"
        "\"required\":[\"code\"],\"additionalProperties\":false}",
        NULL,
        "{\"readOnlyHint\":false,\"destructiveHint\":false,\"idempotentHint\":false,"
        "\"openWorldHint\":true}",
        false, true, execute_call},
    {"resume", "Resume an execution",
        "Goes on with an execution: delivers a person's decision about a pause, or waits for "
        "work that is still running (action \"accept\"). action \"cancel\" stops work that is "
        "running. Returns the result or the next pause, which has another executionId.",
        "{\"type\":\"object\",\"properties\":{"
        "\"executionId\":{\"type\":\"string\",\"description\":\"From the answer of execute or "
        "resume.\"},"
        "\"action\":{\"type\":\"string\",\"enum\":[\"accept\",\"decline\",\"cancel\"]},"
        "\"content\":{\"type\":\"string\",\"description\":\"A JSON object with the fields that "
        "the pause asked for; {} when there are none.\"}},"
        "\"required\":[\"executionId\",\"action\"],\"additionalProperties\":false}",
        NULL,
        "{\"readOnlyHint\":false,\"destructiveHint\":true,\"idempotentHint\":true,"
        "\"openWorldHint\":true}",
        false, true, execution_resume},
};

static const struct mcp_surface default_surface = {.name = "hermes",
    .title = "Hermes",
    .instructions =
        "Runs untrusted code in sandboxes. Use execute; search the catalog of tools "
        "from the code.",
    .tools = default_tools,
    .tool_count = sizeof(default_tools) / sizeof(default_tools[0])};

const struct mcp_surface *mcp_surface_at(const char *path, size_t len)
{
    static const struct {
        const char *path;
        const struct mcp_surface *surface;
    } rows[] = {{"/mcp", &default_surface}, {"/mcp/full", &mcp_full_surface}};
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        if (strlen(rows[i].path) == len && strncmp(rows[i].path, path, len) == 0)
            return rows[i].surface;
    }
    return NULL;
}
