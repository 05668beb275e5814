/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The tool `execute`: runs code in a fresh session without network, and lets it call the tools
 * of the catalog. The result has the form that users of Executor know. */

#include "mcp/mcp.h"

mcp_handler execute_call;
