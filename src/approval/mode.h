/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Who answers a question about an effect that no rule and no grant decides
 * (`approval_mode`). */

enum approval_mode {
    APPROVAL_OFF,    /* no one: the effect is allowed */
    APPROVAL_MANUAL, /* a person */
    APPROVAL_SMART,  /* the reviewer; a person for what it does not approve */
    APPROVAL_GATED,  /* the reviewer, whose denial counts; a person for the rest */
};
int approval_mode_find(const char *name); /* -ENOENT */
const char *approval_mode_name(enum approval_mode mode);
