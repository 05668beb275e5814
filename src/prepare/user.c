/* SPDX-License-Identifier: Apache-2.0 */

/* The server's user. The name service runs here, in a process that does not stay. */

#include "prepare/prepare.h"

#include "base/alloc.h"
#include "base/str.h"

#include <grp.h>
#include <pwd.h>
#include <stdlib.h>
#include <unistd.h>

/* Distributions leave these ids free (systemd's table of uids, Debian's policy), and they exist
 * in a container with 65,536 ids too. lang/version.c uses the next one. */
enum { FREE_ID_FIRST = 65520, FREE_ID_LAST = 65532 };

/* An unused user id. Not `nobody`: other services run as that user and could read the server's
 * files. */
static uid_t find_free_id(void)
{
    for (uid_t id = FREE_ID_FIRST; id <= FREE_ID_LAST; id++) {
        if (!getpwuid(id) && !getgrgid(id))
            return id;
    }
    return 0;
}

void choose_user(struct prepare *p, struct strv *problems)
{
    p->uid = geteuid();
    p->gid = getegid();
    if (p->uid != 0)
        return;
    const char *named = p->config.user;
    uint32_t number;
    const struct passwd *user = named[0] ? getpwnam(named) : getpwnam("hermes");
    if (user && user->pw_uid != 0) {
        p->uid = user->pw_uid;
        p->gid = user->pw_gid;
    } else if (!named[0] && (number = find_free_id()) != 0) {
        p->uid = p->gid = number;
    } else if (named[0] && str_parse_u32(named, &number) == 0 && number != 0) {
        p->uid = p->gid = number;
    } else {
        strv_add_owned(problems,
            xasprintf("user: there is no user `%s`, or it is root; name one, or run: useradd "
                      "--system --no-create-home hermes",
                named[0] ? named : "hermes"));
    }
}
