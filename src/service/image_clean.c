/* SPDX-License-Identifier: Apache-2.0 */

/* Removes images from a server's store (service/image.h): when the store is too large, and
 * prebuilt images that are too old. */

#include "service/image.h"

#include "base/alloc.h"
#include "base/clock.h"
#include "base/log.h"
#include "run/image_root.h"
#include "service/later.h"
#include "service/templates.h"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum {
    HOUR_THOUSANDTH_MS = 3600, /* milliseconds in a thousandth of an hour */
    DAY_S = 86400,
    DAYS_MAX = 1000000, /* no image is older */
};

static void trim(void *engine)
{
    image_roots_trim(engine);
}

struct image_trim service_image_trim(const struct state *state)
{
    return (struct image_trim){trim, state->engine};
}

static void clean(struct state *state, const struct image_bounds *bounds)
{
    const struct image_trim letting_go = service_image_trim(state);
    struct image_gone gone = {0};
    struct err err = {0};
    if (image_store_clean(state->images, bounds, &letting_go, &gone, &err) < 0)
        log_event(LOG_WARN, "images could not be cleaned", "reason", err.message, (char *)NULL);
}

void service_images_fit(struct state *state)
{
    const struct config *c = &state->config;
    clean(state, &(struct image_bounds){.max_bytes = c->image_store_mb << 20,
                     .made_before_s = image_made_before(c->image_max_age_days)});
}

static void note_name(void *removed, const struct image *image)
{
    (void)json_array_append_new(removed, json_string(image->name));
}

/* An image of this very second is 0 days old. */
static void clean_prebuilt(
    struct state *state, const char *owner, uint64_t days, json_t *removed)
{
    int64_t age_s = (int64_t)(days < DAYS_MAX ? days : DAYS_MAX) * DAY_S;
    clean(state, &(struct image_bounds){.made_before_s = time(NULL) + 1 - age_s,
                     .prefix = PREBUILT,
                     .owner = owner,
                     .told = note_name,
                     .context = removed});
}

int service_prebuilt_clean(
    struct state *state, int owner, uint64_t days, json_t *removed, struct err *err)
{
    int r = service_images_check(state, err);
    if (r == 0)
        service_templates_drop(state, owner, NULL);
    if (r == 0)
        clean_prebuilt(state, service_image_owner(state, owner), days, removed);
    return r;
}

static enum run_status clean_later(struct later *later, struct answer **ret_answer)
{
    char count[24];
    json_t *removed = json_array();
    clean_prebuilt(later->state, NULL, later->state->config.cleanup_max_age_days, removed);
    (void)snprintf(count, sizeof(count), "%zu", json_array_size(removed));
    if (json_array_size(removed))
        log_event(LOG_INFO, "old prebuilt images are removed", "count", count, (char *)NULL);
    json_decref(removed);
    return RUN_OK;
}

static void free_cleaning(struct later *later)
{
    later->state->is_cleaning = false;
    free(later);
}

/* On a thread of its own: trees take long to remove. */
void service_images_tick(struct state *state)
{
    uint64_t now = clock_ms();
    uint64_t pause_ms = state->config.cleanup_interval_hours * HOUR_THOUSANDTH_MS;
    struct err err = {0};
    if (!state->cleaned_at_ms)
        state->cleaned_at_ms = now;
    if (!state->images || now - state->cleaned_at_ms < pause_ms || state->is_cleaning)
        return;
    state->cleaned_at_ms = now;
    state->is_cleaning = true;
    struct later *later = xcalloc(1, sizeof(*later));
    *later =
        (struct later){.state = state, .owner = -1, .work = clean_later, .free = free_cleaning};
    if (later_start(later, NULL, &err) < 0)
        later_free(later);
}
