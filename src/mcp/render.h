/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Turns an answer of the REST API (a run, an exec, a judgement) into the result of a tool: a
 * text for the model, images, and the rest of the answer for programs. Long output is cut in
 * the middle; the whole is kept as a resource of the execution. */

#include "mcp/execution/execution.h"

enum { RENDER_OUTPUT_MAX = 20000 }; /* bytes of each stream that the model sees */

/* Takes the answer. */
json_t *render_answer(struct execution *e, json_t *answer);
