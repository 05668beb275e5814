/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Keeps the template boxes of users' images (template/box.h): which there are, for whom, how
 * many and how long. A template belongs to the key whose run needed it, and only runs of that
 * key are copies of it. It is started in the background, counts against the budget of its key,
 * and ends when no run needs it, when memory is short, and with its image. A template that
 * fails is tried again later, after a pause that grows. */

#include "state/state.h"

void service_templates_open(struct state *state);
void service_templates_close(struct state *state);

/* Called by service_tick(). */
void service_templates_tick(struct state *state);

/* Whether runs of this owner with the image are copies of a template now. */
bool service_templates_has(struct state *state, int owner, const char *image);

/* Ends the templates of an owner and of an image (NULL: any) that have no copies, so that
 * images can be removed. A caller does not know of templates, so they must not keep an image
 * in use. */
enum { TEMPLATES_OF_ALL = -2 };
void service_templates_drop(struct state *state, int owner, const char *image);
