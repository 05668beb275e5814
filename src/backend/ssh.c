/* SPDX-License-Identifier: Apache-2.0 */

/* A machine that the system's ssh client leads to: its configuration, keys and known hosts are
 * those of the user of hermes-places, unless the row names others. Nothing is forwarded, nobody
 * is asked, and a host that is not known is refused. Sessions of one row share a connection.
 */

#include "backend/backend.h"

#include "base/alloc.h"
#include "base/strv.h"
#include "proto/far.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void add_option(struct strv *argv, const char *option)
{
    strv_add(argv, "-o");
    strv_add(argv, option);
}

static void add_named(struct strv *argv, const char *name, const char *value)
{
    strv_add(argv, "-o");
    strv_add_owned(argv, xasprintf("%s=%s", name, value));
}

static enum place_error ssh_stream(
    struct backend *b, const char *script, struct backend_stream *ret)
{
    static const char *const fixed[] = {"BatchMode=yes", "ConnectTimeout=10",
        "ServerAliveCountMax=3", "ForwardAgent=no", "ForwardX11=no", "ClearAllForwardings=yes",
        "PermitLocalCommand=no", "StrictHostKeyChecking=yes", "ControlMaster=auto",
        "ControlPersist=300", "EscapeChar=none", "RequestTTY=no"};
    const struct place_row *row = b->row;
    struct strv argv = {0};
    strv_add(&argv, "ssh");
    if (row->ssh_config[0]) {
        strv_add(&argv, "-F");
        strv_add(&argv, row->ssh_config);
    }
    for (size_t i = 0; i < sizeof(fixed) / sizeof(fixed[0]); i++)
        add_option(&argv, fixed[i]);
    strv_add(&argv, "-o");
    strv_add_owned(
        &argv, xasprintf("ServerAliveInterval=%u",
                   far_silent_s(row->reconnect_s ? row->reconnect_s : UINT32_MAX) / 4));
    strv_add(&argv, "-o");
    /* One path per row: a caller of one row must not get a connection made with another
     * row's key. */
    strv_add_owned(&argv, xasprintf("ControlPath=%s/%u-%%C", b->control_dir, b->number));
    if (row->key_file[0]) {
        add_named(&argv, "IdentityFile", row->key_file);
        add_option(&argv, "IdentitiesOnly=yes");
    }
    if (row->known_hosts[0])
        add_named(&argv, "UserKnownHostsFile", row->known_hosts);
    if (row->user[0])
        add_named(&argv, "User", row->user);
    if (row->port)
        strv_add_owned(&argv, xasprintf("-p%u", row->port));
    strv_add(&argv, "--");
    strv_add(&argv, row->host);
    strv_add_owned(&argv, xasprintf("exec /bin/sh -c '%s'", script));
    int r = backend_spawn(argv.items, NULL, ret);
    strv_done(&argv);
    return backend_spawned(b, r);
}

/* Adds where the credential came from. Callers read this: it has no paths. */
static enum place_error explain_auth(struct backend *b, const char *said)
{
    const struct place_row *row = b->row;
    const char *more = "the keys are those of backends_user";
    if (strstr(said, "Host key verification failed"))
        more = row->known_hosts[0] ? "add the key of the host to the file of known_hosts"
                                   : "add the key of the host to ~/.ssh/known_hosts of "
                                     "backends_user, or name a file in known_hosts";
    else if (row->key_file[0] && access(row->key_file, R_OK) < 0)
        return backend_fail(b, PLACE_AUTH, "%s; backends_user cannot read key_file: %s",
            b->words, strerror(errno));
    else if (row->key_file[0])
        more = "the key is that of key_file";
    return backend_fail(b, PLACE_AUTH, "%s; %s", b->words, more);
}

static enum place_error ssh_judge(struct backend *b, const char *said)
{
    static const struct {
        const char *text;
        enum place_error error;
    } rows[] = {
        {"Permission denied", PLACE_AUTH},
        {"Host key verification failed", PLACE_AUTH},
        {"No such file or directory", PLACE_AUTH},
        {"Could not resolve hostname", PLACE_NOT_FOUND},
        {"not found", PLACE_REFUSED},
    };
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
        if (strstr(said, rows[i].text))
            return rows[i].error == PLACE_AUTH ? explain_auth(b, said) : rows[i].error;
    return PLACE_UNREACHABLE;
}

const struct backend_ops backend_ssh = {.stream = ssh_stream, .judge = ssh_judge};
