/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* What a server does now, as the JSON of GET /v1/status, GET /v1/events and GET /v1/keys. */

#include "state/state.h"

#include <jansson.h>

enum { STATUS_BOXES_MAX = 1000 }; /* boxes in one document */

/* The document for a caller. An operator sees the boxes of all keys, others see their own.
 * Two documents are equal when nothing has changed. */
json_t *status_json(struct state *state, int owner);

/* Names, roles, quotas and use of all keys. */
json_t *status_keys_json(struct state *state);
