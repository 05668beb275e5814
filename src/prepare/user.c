/* SPDX-License-Identifier: Apache-2.0 */

/* The users of the server, of hermes-egress, hermes-inject, hermes-reach and hermes-places. The
 * name service runs here, in a process that does not stay. */

#include "prepare/prepare.h"

#include "base/alloc.h"
#include "base/os/user.h"

#include <errno.h>
#include <unistd.h>

/* The ssh client and local commands do; the engine of containers is a socket. */
static bool needs_home(const struct place_table *places)
{
    bool needs = false;
    for (uint32_t i = 0; i < places->count; i++)
        needs = needs || places->rows[i].kind != PLACE_DOCKER;
    return needs;
}

void choose_users(struct prepare *p, struct strv *problems)
{
    const char *named = p->config.user;
    const char *egress = p->config.network_user;
    uid_t taken[5] = {0};
    p->uid = p->egress_uid = p->inject_uid = p->reach_uid = p->places_uid = geteuid();
    p->gid = p->egress_gid = p->inject_gid = p->reach_gid = p->places_gid = getegid();
    if (p->uid != 0)
        return;
    if (user_choose(named, "hermes", taken, &p->uid, &p->gid) < 0)
        strv_add_owned(problems,
            xasprintf("user: there is no user `%s`, or it is root; name one, or run: useradd "
                      "--system --no-create-home hermes",
                named[0] ? named : "hermes"));
    taken[0] = p->uid;
    int r = user_choose(egress, "hermes-egress", taken, &p->egress_uid, &p->egress_gid);
    if (r < 0)
        strv_add_owned(problems,
            xasprintf(r == -EEXIST
                          ? "network_user: `%s` is the server's user (setting user); name "
                            "another, or run: useradd --system --no-create-home hermes-egress"
                          : "network_user: there is no user `%s`, or it is root; name one, or "
                            "run: useradd --system --no-create-home hermes-egress",
                egress[0] ? egress : "hermes-egress"));
    taken[1] = p->egress_uid;
    if (p->config.secrets.count &&
        user_choose("", "hermes-inject", taken, &p->inject_uid, &p->inject_gid) < 0)
        strv_add(problems, "there is no user for hermes-inject; run: useradd --system "
                           "--no-create-home hermes-inject");
    taken[2] = p->inject_uid;
    if (needs_home(&p->config.places) && !p->config.backends_user[0])
        strv_add(problems,
            "backends_user is missing: backends need a user of their own, with a "
            "home directory; name one");
    if (user_choose("", "hermes-reach", taken, &p->reach_uid, &p->reach_gid) < 0)
        strv_add(problems, "there is no user for hermes-reach; run: useradd --system "
                           "--no-create-home hermes-reach");
    taken[3] = p->reach_uid;
    if (user_choose(p->config.backends_user, "hermes-places", taken, &p->places_uid,
            &p->places_gid) < 0)
        strv_add(problems,
            "hermes-places needs a user of its own: backends_user is root, unknown or the user "
            "of another program; run: useradd --system --create-home hermes-places");
}
