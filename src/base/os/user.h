/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Users for programs that give up root. */

#include <sys/types.h>

/* Chooses a user: `named` (a name or a number) unless it is "", else `usual` if there is such a
 * user, else an id that nobody has. Never root and none of `taken`, a list that ends with 0.
 * Returns 0; -ENOENT when there is no such user, or it is root; -EEXIST when it is taken. */
int user_choose(
    const char *named, const char *usual, const uid_t *taken, uid_t *ret_uid, gid_t *ret_gid);
