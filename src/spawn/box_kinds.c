/* SPDX-License-Identifier: Apache-2.0 */

/* See box_kinds.h. A row of the table has the functions in which boxes of a kind differ. All
 * other code asks the row and the state, not where a box comes from. */

#include "spawn/box_parts.h"

#include <errno.h>

/* is_session, made ahead by, make, obey, on_link, on_end */
const struct box_kind box_kinds[] = {
    [KIND_COLD] = {false, NULL, box_make_cold, NULL, box_on_link, box_on_end},
    [KIND_ZYGOTE] = {false, &zygote_ahead, box_make_by_zygote, NULL, box_on_link, box_on_end},
    [KIND_POOL] = {false, &pool_ahead, box_make_cold, NULL, box_on_link, box_on_end},
    [KIND_SESSION] = {true, NULL, box_make_cold, box_obey_session, box_on_link, box_on_end},
    [KIND_ZYGOTE_SESSION] = {true, &zygote_ahead, box_make_by_zygote, box_obey_session,
        box_on_link, box_on_end},
    [KIND_COPY] = {true, NULL, NULL, box_obey_copy, box_on_copy_link, box_on_copy_end},
    [KIND_COPY_RUN] = {false, NULL, NULL, NULL, box_on_copy_link, box_on_copy_end},
};

enum box_kind_name box_kind_for(uint32_t flags, int zygote)
{
    if (flags & BOX_CHANNEL)
        return zygote >= 0 ? KIND_ZYGOTE_SESSION : KIND_SESSION;
    return zygote >= 0 ? KIND_ZYGOTE : KIND_COLD;
}

void box_enter(struct spawner *s, struct box *box, enum box_state state)
{
    bool is_restart = box->state == STATE_RESTING && state == STATE_RUNNING;
    if (state <= box->state && !is_restart)
        return;
    if (box->state <= STATE_READY)
        box->kind->ahead->on_change(s, box, state);
    box->state = state;
}

void box_note_failure(struct spawner *s, struct box *box, uint32_t step, int error)
{
    box->step = step;
    box->error = error ? error : -EIO;
    box_enter(s, box, STATE_ENDING);
}
