/* The least that an agent of our architecture can do: take publications in at one place and hand
 * them out at another, with the crossings of our own links. No routes, seals, duplicate window, log
 * or flow control: a limit, and no product.
 *
 *   limit sub PORT FILTER | frames PORT TOPIC | listen PORT    then    pub PORT | frame PORT TOPIC | send PORT
 *
 * In:  publications of a broker; those in frames of a broker; those of the process before, by TCP.
 * Out: to a broker as they are; in frames, each a publication of TOPIC; to the next process.
 *
 * Publications pass with the packet identifier of the broker that gave them: what the far broker
 * acknowledges is acknowledged to the near one unread. QoS 0 and 1; frames are subscribed at QoS 0.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { PUBLISH = 0x30, PUBACK = 0x40, CAPACITY = 16 << 20, HEADER_MAX = 5 };

static void fail(const char *what) {
    fprintf(stderr, "limit: %s: %s\n", what, errno ? strerror(errno) : "closed");
    exit(1);
}

static void send_all(int to, const uint8_t *data, size_t length) {
    while (length) {
        ssize_t sent = send(to, data, length, MSG_NOSIGNAL);
        if (sent <= 0) fail("send");
        data += sent;
        length -= sent;
    }
}

static int open_socket(int port, int listens) {
    struct sockaddr_in place = {.sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int made = socket(AF_INET, SOCK_STREAM, 0), one = 1;
    if (listens) {
        setsockopt(made, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
        if (bind(made, (void *)&place, sizeof place) || listen(made, 1)) fail("listen");
        int caller = accept(made, NULL, NULL);
        close(made);
        made = caller;
    } else {
        for (int tries = 0; connect(made, (void *)&place, sizeof place); tries++) {
            if (tries == 100) fail("connect");
            usleep(50000); /* the next process may not listen yet */
        }
    }
    setsockopt(made, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    return made;
}

/* Length of the packet at `data`, its fixed header's in `header`; 0: not all of that is there. */
static size_t packet_length(const uint8_t *data, size_t length, size_t *header) {
    size_t rest = 0;
    for (size_t at = 1; at < length && at < HEADER_MAX; at++) {
        rest |= (size_t)(data[at] & 0x7f) << (7 * (at - 1));
        if (!(data[at] & 0x80)) return *header = at + 1, at + 1 + rest;
    }
    return 0;
}

static size_t put_header(uint8_t *at, uint8_t type, size_t rest) {
    size_t size = 0;
    for (at[size++] = type; rest > 0x7f; rest >>= 7) at[size++] = rest | 0x80;
    at[size++] = rest;
    return size;
}

static size_t put_text(uint8_t *at, const char *text) {
    size_t length = strlen(text);
    at[0] = length >> 8;
    at[1] = length;
    memcpy(at + 2, text, length);
    return 2 + length;
}

/* A client of the broker at `port`, which subscribes `filter` unless that is NULL. */
static int connect_client(int port, const char *filter, int qos) {
    int made = open_socket(port, 0);
    uint8_t body[512], packet[600], answer[16];
    char name[32];
    sprintf(name, "limit-%d-%d", getpid(), made);
    size_t length = put_text(body, "MQTT");
    memcpy(body + length, "\x04\x02\0\0", 4);
    length += 4 + put_text(body + length + 4, name);
    size_t header = put_header(packet, 0x10, length);
    memcpy(packet + header, body, length);
    send_all(made, packet, header + length);
    if (recv(made, answer, 4, MSG_WAITALL) != 4 || answer[3]) fail("CONNACK");
    if (filter) {
        memcpy(body, "\0\1", 2);
        length = 2 + put_text(body + 2, filter);
        body[length++] = qos;
        header = put_header(packet, 0x82, length);
        memcpy(packet + header, body, length);
        send_all(made, packet, header + length);
        if (recv(made, answer, 5, MSG_WAITALL) != 5 || answer[4] > 2) fail("SUBACK");
    }
    return made;
}

int main(int count, char **words) {
    if (count < 5) fail("arguments");
    int unframes = !strcmp(words[1], "frames"), listens = !strcmp(words[1], "listen");
    char **out_words = words + (listens ? 3 : 4);
    int frames = !strcmp(out_words[0], "frame"), sends = !strcmp(out_words[0], "send");
    int out_port = atoi(out_words[1]), in_port = atoi(words[2]);
    int in = listens ? open_socket(in_port, 1) : connect_client(in_port, words[3], !unframes);
    int out = sends ? open_socket(out_port, 0) : connect_client(out_port, NULL, 0);
    uint8_t *taken = malloc(CAPACITY), *handed = malloc(2 * CAPACITY), acks[65536];
    size_t filled = 0, ack_bytes = 0;
    puts("up");
    fflush(stdout);
    for (;;) {
        struct pollfd both[2] = {{in, POLLIN, 0}, {out, POLLIN, 0}};
        if (poll(both, 2, -1) < 0) fail("poll");
        if (both[1].revents) { /* acknowledgements, four bytes each, and nothing else */
            ssize_t got = recv(out, acks + ack_bytes, sizeof acks - ack_bytes, 0);
            if (got <= 0) fail("acknowledgements");
            ack_bytes += got;
            size_t whole = ack_bytes & ~(size_t)3;
            if (!unframes) send_all(in, acks, whole);
            memmove(acks, acks + whole, ack_bytes -= whole);
        }
        if (!both[0].revents) continue;
        ssize_t got = recv(in, taken + filled, CAPACITY - filled, 0);
        if (got <= 0) fail("publications");
        filled += got;
        size_t used = 0, size = 0, header, length;
        while ((length = packet_length(taken + used, filled - used, &header)) && length <= filled - used) {
            uint8_t *packet = taken + used;
            size_t bytes = length;
            if (unframes) { /* what is in the frame, behind its topic */
                size_t skipped = header + 2 + (packet[header] << 8 | packet[header + 1]);
                packet += skipped;
                bytes -= skipped;
                packet_length(packet, bytes, &header);
            }
            if ((packet[0] & 0xf0) == PUBLISH) {
                if (frames) {
                    int qos = packet[0] >> 1 & 3;
                    size_t topic = 2 + strlen(out_words[2]);
                    size += put_header(handed + size, PUBLISH | qos << 1, topic + (qos ? 2 : 0) + bytes);
                    size += put_text(handed + size, out_words[2]);
                    if (qos) { /* under the publication's own identifier */
                        uint8_t *its = packet + header + 2 + (packet[header] << 8 | packet[header + 1]);
                        memcpy(handed + size, its, 2);
                        size += 2;
                    }
                }
                memcpy(handed + size, packet, bytes);
                size += bytes;
            }
            used += length;
        }
        if (size) send_all(out, handed, size);
        memmove(taken, taken + used, filled -= used);
    }
}
