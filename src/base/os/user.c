/* SPDX-License-Identifier: Apache-2.0 */

#include "base/os/user.h"

#include "base/str.h"

#include <errno.h>
#include <grp.h>
#include <pwd.h>
#include <stdbool.h>
#include <stdint.h>

/* Distributions leave these ids free (systemd's table of uids, Debian's policy), and they exist
 * in a container with 65,536 ids too. lang/version.c uses the next one. */
enum { FREE_ID_FIRST = 65520, FREE_ID_LAST = 65532 };

static bool is_among(uid_t id, const uid_t *list)
{
    while (*list && *list != id)
        list++;
    return *list;
}

/* An unused user id, or 0. Not `nobody`: other services run as that user and could read our
 * files. */
static uid_t find_free_id(const uid_t *taken)
{
    for (uid_t id = FREE_ID_FIRST; id <= FREE_ID_LAST; id++) {
        if (!is_among(id, taken) && !getpwuid(id) && !getgrgid(id))
            return id;
    }
    return 0;
}

int user_choose(
    const char *named, const char *usual, const uid_t *taken, uid_t *ret_uid, gid_t *ret_gid)
{
    const struct passwd *user = getpwnam(named[0] ? named : usual);
    uint32_t number = 0;
    if (user) {
        *ret_uid = user->pw_uid;
        *ret_gid = user->pw_gid;
    } else {
        if (!named[0])
            number = find_free_id(taken);
        else if (str_parse_u32(named, &number) < 0)
            number = 0;
        *ret_uid = *ret_gid = number;
    }
    return *ret_uid == 0 ? -ENOENT : is_among(*ret_uid, taken) ? -EEXIST : 0;
}
