/* SPDX-License-Identifier: Apache-2.0 */
/* Clocks of a Jetson for applications in C and C++: ask jetdvfsd for a target, report frames, give the clocks back.
 * Needs nothing but libc; docs/integrate.md has an application. What is asked (load, hold, release) waits for the answer, for
 * `timeout_ms` at most. Frames never wait: they are noted, and sent a few times a second as far as the daemon takes them.
 * Without a daemon, or after it went away, all of this does nothing, quickly: connect and hold again when it suits.
 *
 * Functions that may fail return 0 or the exit code of the command line: 2 wrong usage, 3 bad input or not permitted, 4 target
 * not attainable, 5 the hardware refused, 6 no daemon; `error` then has one line that says what. A client is for one thread at
 * a time, and there may be any number of them. The messages are those of docs/jetdvfs.varlink.
 *
 * With -std=c99 or c11 instead of gnu99 or gnu11, define _GNU_SOURCE.
 */
#ifndef JETDVFS_H
#define JETDVFS_H

#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#ifdef __cplusplus
extern "C" {
#endif

enum {
    JETDVFS_USAGE = 2, JETDVFS_INPUT = 3, JETDVFS_NO_DAEMON = 6, JETDVFS_NAME_BYTES = 64,
    JETDVFS_FRAMES = 512,           /* sent together at most; the daemon takes 1024 */
    JETDVFS_FRAME_BYTES = 13,       /* of one at most, as in ",10000000.000" */
    JETDVFS_CALL_BYTES = 1 << 13,   /* of a message to the daemon */
    JETDVFS_ANSWER_BYTES = 1 << 20  /* of one from it */
};

/* A connection, and the lease it holds. Its members are for reading, but for timeout_ms. */
typedef struct {
    int socket;                     /* -1: there is no daemon, or there is none any more */
    int timeout_ms;                 /* how long an answer may take */
    char lease[JETDVFS_NAME_BYTES]; /* empty: none is held */
    long cpu_khz, gpu_hz, emc_hz;   /* the clocks in force when it was taken, as measured */
    int verified;                   /* whether those are the ones that were asked for */
    unsigned long frames, dropped;  /* noted so far, and those of them that no daemon took */
    char error[512];                /* what the last failure was; empty after success */
    double fps, confidence;         /* from here on the header's own: as the lease has them */
    uint64_t began_ns, sent_ns, asked_ns;
    unsigned noted;
    size_t empty_bytes, report_bytes, sent_bytes;
    char report[JETDVFS_CALL_BYTES];
} jetdvfs_client;

/* A network that the daemon knows on a connection. */
typedef struct {
    char handle[JETDVFS_NAME_BYTES];
    long launches;
} jetdvfs_network;

/* What is wanted: a network and a target, or the three clocks. What is zero is not said. */
typedef struct {
    const jetdvfs_network *network;
    const char *target;             /* such as "latency_ms=20", "tokens_per_s=20" or "min-energy" */
    double fps;                     /* frames per second that the application runs at */
    double confidence;              /* with which the target must be met, 0.5 to below 1 */
    long cpu_khz, gpu_hz, emc_hz;   /* instead of network and target */
    const char *reason, *app;       /* for whoever looks at the status */
} jetdvfs_wish;

/* What ends with an underscore is used by the functions at the end. */
typedef struct {
    size_t used;
    char text[JETDVFS_CALL_BYTES];
} jetdvfs_call_;

static inline void jetdvfs_put_(jetdvfs_call_ *call, const char *text) {
    size_t length = strlen(text);
    if (call->used + length < sizeof call->text) memcpy(call->text + call->used, text, length + 1);
    call->used += length; /* one that has grown beyond its room is refused as it is sent */
}

static inline void jetdvfs_put_string_(jetdvfs_call_ *call, const char *text) {
    char escaped[8];
    for (jetdvfs_put_(call, "\""); *text; text++) {
        unsigned char letter = (unsigned char)*text;
        int plain = letter >= 32 && letter != '"' && letter != '\\';
        snprintf(escaped, sizeof escaped, plain ? "%c" : "\\u%04x", letter);
        jetdvfs_put_(call, escaped);
    }
    jetdvfs_put_(call, "\"");
}

static inline void jetdvfs_put_member_(jetdvfs_call_ *call, const char *name, const char *text) {
    if (!text || !*text) return;
    jetdvfs_put_(call, ","), jetdvfs_put_string_(call, name);
    jetdvfs_put_(call, ":"), jetdvfs_put_string_(call, text);
}

static inline void jetdvfs_put_number_(jetdvfs_call_ *call, const char *name, double number) {
    char member[80];
    long long millionths = number > 0 && number < 1e12 ? (long long)(number * 1e6 + 0.5) : 0;
    /* Not with %f, which may write a comma for the point. */
    snprintf(member, sizeof member, ",\"%s\":%lld.%06lld", name, millionths / 1000000, millionths % 1000000);
    if (millionths) jetdvfs_put_(call, member);
}

/* The end of the JSON value that starts here. */
static inline const char *jetdvfs_past_(const char *at) {
    int depth = 0;
    for (; *at; at++) {
        if (*at == '"')
            for (at++; *at && *at != '"'; at++) at += *at == '\\' && at[1];
        if (!*at || (!depth && strchr(",]}", *at))) return at;
        depth += (*at == '{' || *at == '[') - (*at == '}' || *at == ']');
        if (!depth && strchr("\"]}", *at)) return at + 1;
    }
    return at;
}

/* A member of the JSON object that starts here; NULL where it has none of that name. */
static inline const char *jetdvfs_member_(const char *object, const char *name) {
    const char *at = object, *key, *end;
    if (!at || *at != '{') return NULL;
    for (at++; *at;) {
        at += strspn(at, " \t\r\n,");
        if (*at != '"') return NULL;
        key = at + 1;
        end = jetdvfs_past_(at);
        at = end + strspn(end, " \t\r\n:");
        if ((size_t)(end - key) == strlen(name) + 1 && !memcmp(key, name, strlen(name))) return at;
        at = jetdvfs_past_(at);
    }
    return NULL;
}

static inline long jetdvfs_whole_(const char *value) { return value ? strtol(value, NULL, 10) : 0; }

/* What a JSON string says, as far as it fits, with a question mark for what is not ASCII. */
static inline void jetdvfs_string_(const char *value, char *to, size_t room) {
    size_t used = 0;
    for (value += value && *value == '"'; value && *value && *value != '"' && used + 1 < room; value++) {
        char letter = *value;
        if (letter == '\\' && value[1]) {
            letter = *++value;
            if (letter == 'u') value += strspn(value + 1, "0123456789abcdefABCDEF") >= 4 ? 4 : 0;
            letter = letter == 'u' ? '?' : strchr("nrt", letter) ? ' ' : letter;
        }
        to[used++] = letter;
    }
    to[used] = '\0';
}

static inline uint64_t jetdvfs_now_ns_(void) {
    struct timespec now;
    return clock_gettime(CLOCK_MONOTONIC, &now) ? 0 : (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static inline int jetdvfs_fail_(jetdvfs_client *client, int code, const char *what, const char *why) {
    snprintf(client->error, sizeof client->error, "%s: %s", what, why);
    return code;
}

static inline void jetdvfs_ended_(jetdvfs_client *client) {
    client->dropped += client->noted;
    client->lease[0] = '\0', client->noted = 0;
}

static inline int jetdvfs_lost_(jetdvfs_client *client, const char *why) {
    if (client->socket >= 0) close(client->socket);
    client->socket = -1, client->sent_bytes = 0;
    jetdvfs_ended_(client);
    return jetdvfs_fail_(client, JETDVFS_NO_DAEMON, why, "there is no daemon");
}

/* Send what is noted: with MSG_DONTWAIT as far as the daemon takes it now, with 0 within a second. */
static inline void jetdvfs_send_noted_(jetdvfs_client *client, uint64_t now_ns, int wait) {
    static const char end[] = "]},\"oneway\":true}"; /* with the zero byte that ends a message */
    size_t left = client->report_bytes + sizeof end - client->sent_bytes;
    ssize_t taken;
    client->sent_ns = now_ns;
    if (client->socket < 0 || !client->noted) return;
    if (!client->sent_bytes) memcpy(client->report + client->report_bytes, end, sizeof end);
    taken = send(client->socket, client->report + client->sent_bytes, left, wait | MSG_NOSIGNAL);
    if (taken < 0 && errno != EAGAIN && errno != EINTR) jetdvfs_lost_(client, strerror(errno));
    if (taken < 0) return;
    client->sent_bytes += (size_t)taken;
    if (client->sent_bytes < client->report_bytes + sizeof end) return;
    client->sent_bytes = client->noted = 0;
    client->report_bytes = client->empty_bytes;
}

static inline void jetdvfs_begin_(jetdvfs_call_ *call, const char *method) {
    call->used = (size_t)snprintf(call->text, sizeof call->text, "{\"method\":\"io.jetdvfs.%s\",\"parameters\":{\"", method);
}

/* Send a call, with a descriptor or -1, and read its answer, which the caller frees. */
static inline int jetdvfs_ask_(jetdvfs_client *client, jetdvfs_call_ *call, int descriptor, int timeout_ms, char **answer) {
    struct timeval patience = {timeout_ms / 1000, timeout_ms % 1000 * 1000};
    union {
        struct cmsghdr header;
        char bytes[CMSG_SPACE(sizeof(int))];
    } attached;
    struct iovec piece = {call->text, call->used + 3}; /* with the end that is put here, and a zero byte */
    struct msghdr message;
    static const char ended[] = "\"io.jetdvfs.LeaseEnded\"";
    char *said = NULL;
    const char *failed, *told;
    size_t used = 0, room = 0;
    ssize_t moved;
    int code;

    *answer = NULL;
    jetdvfs_put_(call, "}}");
    if (call->used >= sizeof call->text) return jetdvfs_fail_(client, JETDVFS_USAGE, "what is asked", "too long");
    if (client->socket < 0) return jetdvfs_lost_(client, "not connected");
    client->error[0] = '\0';
    if (client->sent_bytes) jetdvfs_send_noted_(client, client->sent_ns, 0); /* the rest of a report comes first */
    if (client->sent_bytes || client->socket < 0) return jetdvfs_lost_(client, "it takes nothing any more");
    memset(&message, 0, sizeof message), memset(&attached, 0, sizeof attached);
    message.msg_iov = &piece, message.msg_iovlen = 1;
    if (descriptor >= 0) {
        attached.header.cmsg_level = SOL_SOCKET, attached.header.cmsg_type = SCM_RIGHTS;
        attached.header.cmsg_len = CMSG_LEN(sizeof(int));
        message.msg_control = attached.bytes, message.msg_controllen = sizeof attached.bytes;
        memcpy(CMSG_DATA(CMSG_FIRSTHDR(&message)), &descriptor, sizeof descriptor);
    }
    while ((moved = sendmsg(client->socket, &message, MSG_NOSIGNAL)) < 0 && errno == EINTR) continue;
    /* One that hangs up may have said before why. */
    if (moved < 0 ? errno != EPIPE : (size_t)moved < piece.iov_len) return jetdvfs_lost_(client, "it takes nothing any more");
    setsockopt(client->socket, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    do {
        if (room - used < 4096 && room <= JETDVFS_ANSWER_BYTES) {
            char *more = (char *)realloc(said, room + 65536);
            if (more) said = more, room += 65536;
        }
        moved = room > used + 1 ? recv(client->socket, said + used, room - used - 1, 0) : 0;
        if (moved > 0) used += (size_t)moved;
    } while (moved > 0 ? said[used - 1] != '\0' : moved < 0 && errno == EINTR);
    failed = moved > 0 ? jetdvfs_member_(said, "error") : NULL;
    if (moved > 0 && !failed) return *answer = said, 0;
    if (failed) {
        told = jetdvfs_member_(said, "parameters");
        code = (int)jetdvfs_whole_(jetdvfs_member_(told, "exit_code"));
        told = jetdvfs_member_(told, "message");
        jetdvfs_string_(told ? told : failed, client->error, sizeof client->error);
        if (!strncmp(failed, ended, sizeof ended - 1)) jetdvfs_ended_(client);
    } else {
        code = jetdvfs_lost_(client, moved == 0 ? "it hung up" : errno == EAGAIN ? "no answer in time" : strerror(errno));
    }
    free(said);
    return code > 0 ? code : JETDVFS_USAGE;
}

/* The path of the user's own daemon's socket, in a folder that only the user or root may write; 0 if there is no such folder. */
static inline int jetdvfs_own_socket_(char *path, size_t room) {
    static const char name[] = "/jetdvfs.sock";
    const char *base = getenv("XDG_RUNTIME_DIR");
    unsigned long user = (unsigned long)geteuid();
    struct stat folder;
    int length;
    if (user == 0) return 0;
    if (base && *base == '/') length = snprintf(path, room, "%s/jetdvfs", base);
    else length = snprintf(path, room, "/tmp/jetdvfs-%lu", user);
    if (length < 0 || (size_t)length + sizeof name > room || lstat(path, &folder)) return 0;
    if (!S_ISDIR(folder.st_mode) || (folder.st_mode & 022) || (folder.st_uid && folder.st_uid != geteuid())) return 0;
    memcpy(path + length, name, sizeof name);
    return 1;
}

static inline int jetdvfs_reach_(jetdvfs_client *client, const char *path) {
    struct sockaddr_un address = {AF_UNIX, ""};
    struct timeval second = {1, 0};
    int why;
    strncpy(address.sun_path, path, sizeof address.sun_path - 1);
    client->socket = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (client->socket < 0) return -1;
    /* While many connect at once, the kernel turns away who does not wait. */
    setsockopt(client->socket, SOL_SOCKET, SO_SNDTIMEO, &second, sizeof second);
    if (connect(client->socket, (struct sockaddr *)&address, sizeof address) == 0) return 0;
    why = errno, close(client->socket), client->socket = -1, errno = why;
    return -1;
}

/* Connect to the daemon: to the socket given, else $JETDVFS_SOCKET, else that of the user's own daemon if one answers in
 * $XDG_RUNTIME_DIR/jetdvfs or /tmp/jetdvfs-UID, else the system's. */
static inline int jetdvfs_connect(jetdvfs_client *client, const char *socket_path) {
    char own[sizeof((struct sockaddr_un *)0)->sun_path];
    const char *path = socket_path ? socket_path : getenv("JETDVFS_SOCKET");
    memset(client, 0, sizeof *client);
    client->timeout_ms = 120000, client->socket = -1;
    if (!path || !*path) {
        if (jetdvfs_own_socket_(own, sizeof own) && jetdvfs_reach_(client, own) == 0) return 0;
        path = "/run/jetdvfs/jetdvfs.sock";
    }
    if (strlen(path) >= sizeof own) return jetdvfs_lost_(client, "the path of its socket is too long");
    if (jetdvfs_reach_(client, path) == 0) return 0;
    int code = errno == EACCES ? JETDVFS_INPUT : JETDVFS_NO_DAEMON;
    jetdvfs_lost_(client, strerror(errno));
    if (code == JETDVFS_INPUT) strcpy(client->error, "permission denied to who is not in the socket's group");
    strncat(strcat(client->error, " on "), path, sizeof own);
    return code;
}

/* Have a model's file read, for inputs in the forms of `jetdvfs decompose --input`; NULL follows the last one. */
static inline int jetdvfs_load(jetdvfs_client *client, const char *model, const char *const *inputs, jetdvfs_network *network) {
    jetdvfs_call_ call;
    const char *name = strrchr(model, '/'), *found, *comma = "";
    char *answer;
    int code, descriptor = open(model, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    memset(network, 0, sizeof *network);
    if (descriptor < 0) return jetdvfs_fail_(client, JETDVFS_INPUT, model, strerror(errno));
    jetdvfs_begin_(&call, "LoadModel");
    for (jetdvfs_put_(&call, "inputs\":[],\"input_texts\":["); inputs && *inputs; inputs++, comma = ",") {
        jetdvfs_put_(&call, comma);
        jetdvfs_put_string_(&call, *inputs);
    }
    jetdvfs_put_(&call, "]");
    jetdvfs_put_member_(&call, "name", name ? name + 1 : model);
    code = jetdvfs_ask_(client, &call, descriptor, client->timeout_ms, &answer);
    close(descriptor);
    if (code) return code;
    found = jetdvfs_member_(jetdvfs_member_(answer, "parameters"), "network");
    jetdvfs_string_(jetdvfs_member_(found, "network"), network->handle, sizeof network->handle);
    network->launches = jetdvfs_whole_(jetdvfs_member_(found, "launches")), free(answer);
    return 0;
}

/* Give the clocks back. A daemon that does not answer within a second does so when it can: the connection is ended then. */
static inline int jetdvfs_release(jetdvfs_client *client) {
    jetdvfs_call_ call;
    char *answer;
    int code;
    if (!client->lease[0]) return 0;
    jetdvfs_send_noted_(client, client->sent_ns, MSG_DONTWAIT);
    jetdvfs_begin_(&call, "Release");
    jetdvfs_put_(&call, "lease\":");
    jetdvfs_put_string_(&call, client->lease);
    code = jetdvfs_ask_(client, &call, -1, 1000, &answer);
    free(answer);
    jetdvfs_ended_(client);
    return code;
}

/* Have clocks held until release, or the connection's end. What is held already is changed where only its network and target
 * are to be others, and stays as it was if that is refused; else it is given back first. */
static inline int jetdvfs_hold(jetdvfs_client *client, const jetdvfs_wish *wish) {
    static const char three[] = ",\"configuration\":{\"cpu_khz\":%ld,\"gpu_hz\":%ld,\"emc_hz\":%ld}";
    static const char report[] = "{\"method\":\"io.jetdvfs.Report\",\"parameters\":{\"lease\":\"%s\",\"latency_ms\":[";
    jetdvfs_call_ call;
    const char *told, *applied, *clocks;
    char text[160], *answer;
    int alike = wish->fps == client->fps && wish->confidence == client->confidence;
    int code, direct = wish->cpu_khz || wish->gpu_hz || wish->emc_hz;
    int change = client->lease[0] && wish->network && wish->target && !direct && alike;
    if (!change) jetdvfs_release(client);
    jetdvfs_send_noted_(client, jetdvfs_now_ns_(), MSG_DONTWAIT);
    jetdvfs_begin_(&call, change ? "Change" : "Hold");
    jetdvfs_put_(&call, change ? "lease\":" : "reason\":");
    jetdvfs_put_string_(&call, change ? client->lease : wish->reason ? wish->reason : "");
    if (!change) jetdvfs_put_member_(&call, "app", wish->app);
    jetdvfs_put_member_(&call, "network", wish->network ? wish->network->handle : NULL);
    jetdvfs_put_member_(&call, "target", wish->target);
    jetdvfs_put_number_(&call, "fps", wish->fps);
    jetdvfs_put_number_(&call, "confidence", wish->confidence);
    snprintf(text, sizeof text, three, wish->cpu_khz, wish->gpu_hz, wish->emc_hz);
    if (direct) jetdvfs_put_(&call, text);
    if ((code = jetdvfs_ask_(client, &call, -1, client->timeout_ms, &answer))) return code;
    told = jetdvfs_member_(answer, "parameters"), applied = jetdvfs_member_(told, "applied");
    clocks = jetdvfs_member_(applied, "effective"), applied = jetdvfs_member_(applied, "verified");
    if (!change) jetdvfs_string_(jetdvfs_member_(told, "lease"), client->lease, sizeof client->lease);
    client->cpu_khz = jetdvfs_whole_(jetdvfs_member_(clocks, "cpu_khz"));
    client->gpu_hz = jetdvfs_whole_(jetdvfs_member_(clocks, "gpu_hz"));
    client->emc_hz = jetdvfs_whole_(jetdvfs_member_(clocks, "emc_hz"));
    client->verified = applied && *applied == 't', free(answer);
    client->fps = wish->fps, client->confidence = wish->confidence, client->asked_ns = client->sent_ns = jetdvfs_now_ns_();
    if (change) return 0;
    client->empty_bytes = client->report_bytes = (size_t)snprintf(client->report, sizeof client->report, report, client->lease);
    return 0;
}

/* Whether the lease stands; not for the path of a frame, for it asks the daemon once a second at most. A daemon that ended took
 * the lease along: connect and hold again then. A lease that another released stays released: `error` says who did. */
static inline int jetdvfs_held(jetdvfs_client *client) {
    jetdvfs_call_ call;
    uint64_t now_ns = jetdvfs_now_ns_();
    char byte, *answer, before[sizeof client->error];
    if (client->socket >= 0 && recv(client->socket, &byte, 1, MSG_PEEK | MSG_DONTWAIT) == 0) jetdvfs_lost_(client, "it ended");
    if (client->socket >= 0 && client->lease[0] && now_ns - client->asked_ns > 1000000000u) {
        client->asked_ns = now_ns;
        jetdvfs_begin_(&call, "Report");
        jetdvfs_put_(&call, "lease\":");
        jetdvfs_put_string_(&call, client->lease);
        jetdvfs_put_(&call, ",\"latency_ms\":[]");
        memcpy(before, client->error, sizeof before);
        jetdvfs_ask_(client, &call, -1, 1000, &answer);
        if (client->lease[0]) memcpy(client->error, before, sizeof before); /* a daemon that is busy is asked again */
        free(answer);
    }
    return client->socket >= 0 && client->lease[0];
}

/* Note a frame's latency in milliseconds. Never waits and never fails. */
static inline void jetdvfs_report(jetdvfs_client *client, double latency_ms) {
    uint64_t now_ns = jetdvfs_now_ns_(), left = 0;
    char digits[JETDVFS_FRAME_BYTES + 1], *at = digits + sizeof digits;
    if (!client->lease[0] || !(latency_ms >= 0 && latency_ms <= 1e7)) return;
    client->frames++;
    if (client->noted < JETDVFS_FRAMES && !client->sent_bytes) {
        int place = 0;
        for (left = (uint64_t)(latency_ms * 1e3 + 0.5); place < 4 || left; place++, left /= 10) {
            if (place == 3) *--at = '.';
            *--at = (char)('0' + left % 10);
        }
        if (client->noted++) *--at = ',';
        memcpy(client->report + client->report_bytes, at, (size_t)(digits + sizeof digits - at));
        client->report_bytes += (size_t)(digits + sizeof digits - at);
    } else {
        client->dropped++;
    }
    left = now_ns - client->sent_ns;
    if (left > 250000000u || (client->noted == JETDVFS_FRAMES && left > 1000000u))
        jetdvfs_send_noted_(client, now_ns, MSG_DONTWAIT);
}

/* A frame begins; one that does not end is not reported. It has to end after the GPU is done (cudaStreamSynchronize): the daemon
 * does not count frames that are launch times. */
static inline void jetdvfs_frame_begin(jetdvfs_client *client) { client->began_ns = jetdvfs_now_ns_(); }

/* A frame has ended: its latency in milliseconds, which is noted for the daemon. */
static inline double jetdvfs_frame_end(jetdvfs_client *client) {
    double latency_ms = (double)(jetdvfs_now_ns_() - client->began_ns) * 1e-6;
    jetdvfs_report(client, latency_ms);
    return latency_ms;
}

/* Release what is held and end the connection. */
static inline void jetdvfs_close(jetdvfs_client *client) {
    jetdvfs_release(client);
    jetdvfs_lost_(client, "closed");
}

#ifdef __cplusplus
} /* extern "C" */
#endif
#endif
