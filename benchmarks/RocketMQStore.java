import java.net.InetSocketAddress;
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.List;
import java.util.Random;
import java.util.concurrent.ConcurrentHashMap;

import org.apache.rocketmq.common.BrokerConfig;
import org.apache.rocketmq.common.message.MessageClientIDSetter;
import org.apache.rocketmq.common.message.MessageDecoder;
import org.apache.rocketmq.common.message.MessageExtBrokerInner;
import org.apache.rocketmq.store.CommitLogDispatcher;
import org.apache.rocketmq.store.DefaultMessageStore;
import org.apache.rocketmq.store.DispatchRequest;
import org.apache.rocketmq.store.SelectMappedBufferResult;
import org.apache.rocketmq.store.config.MessageStoreConfig;
import org.apache.rocketmq.store.stats.BrokerStatsManager;

/**
 * RocketMQ's own store with the messages of the other benchmarks: 300 bytes in 20 topics of 8 queues, a tag, a key, a unique
 * key. Prints "FIGURE name value" for each figure, in messages a second, but for the bytes of a message.
 *
 * Arguments: a new directory, the number of messages.
 */
public class RocketMQStore {
    private static final int TOPICS = 20, QUEUES = 8, BODY_BYTES = 300, KEYS_ASKED = 20_000;

    public static void main(String[] arguments) {
        int status = 1;
        try {
            measure(arguments[0], Integer.parseInt(arguments[1]));
            status = 0;
        } catch (Throwable failure) {
            failure.printStackTrace();
        }
        System.out.flush();
        // Threads of the store would keep the process alive.
        Runtime.getRuntime().halt(status);
    }

    private static void measure(String root, int count) throws Exception {
        System.setProperty("rocketmq.remoting.version", "493");
        MessageStoreConfig config = new MessageStoreConfig();
        config.setStorePathRootDir(root);
        config.setStorePathCommitLog(root + "/commitlog");
        config.setHaListenPort(0);
        config.setTimerWheelEnable(false);
        DefaultMessageStore store = new DefaultMessageStore(
            config, new BrokerStatsManager("c", false), (topic, queue, offset, tags, time, bits, properties) -> { },
            new BrokerConfig(), new ConcurrentHashMap<>());
        if (!store.load()) {
            throw new IllegalStateException("the store does not load");
        }
        // The store follows its log while messages are put, as a broker does. What it does with each is timed apart.
        List<CommitLogDispatcher> dispatchers = new ArrayList<>(store.getDispatcherList());
        store.getDispatcherList().clear();
        store.start();

        long began = System.nanoTime();
        put(store, count);
        figure("put", count, began);
        long end = store.getMaxPhyOffset();
        System.out.println("FIGURE log bytes a message " + end / count);
        while (store.dispatchBehindBytes() > 0) {
            Thread.sleep(10);
        }

        store.getDispatcherList().addAll(dispatchers);
        began = System.nanoTime();
        expect(count, dispatch(store, end));
        figure("dispatch", count, began);

        began = System.nanoTime();
        expect(count, decode(store, end));
        figure("read and decode", count, began);

        Random random = new Random(7);
        began = System.nanoTime();
        for (int asked = 0; asked < KEYS_ASKED; asked++) {
            int number = random.nextInt(count);
            if (store.queryMessage(topic(number), key(number), 32, 0, Long.MAX_VALUE).getMessageMapedList().isEmpty()) {
                throw new IllegalStateException("no message has the key " + key(number));
            }
        }
        figure("query by key", KEYS_ASKED, began);
    }

    private static void put(DefaultMessageStore store, int count) {
        byte[] text = new byte[1 << 20];
        String words = "0123456789abcdef";
        Random random = new Random(7);
        for (int at = 0; at < text.length; at++) {
            text[at] = (byte) words.charAt(random.nextInt(words.length()));
        }
        InetSocketAddress host = new InetSocketAddress("127.0.0.1", 10911);
        for (int number = 0; number < count; number++) {
            MessageExtBrokerInner message = new MessageExtBrokerInner();
            message.setTopic(topic(number));
            message.setQueueId(number / TOPICS % QUEUES);
            byte[] body = new byte[BODY_BYTES];
            System.arraycopy(text, random.nextInt(text.length - BODY_BYTES), body, 0, BODY_BYTES);
            message.setBody(body);
            message.setTags("tag-" + number % 5);
            message.setKeys(key(number));
            MessageClientIDSetter.setUniqID(message);
            message.setPropertiesString(MessageDecoder.messageProperties2String(message.getProperties()));
            message.setBornTimestamp(System.currentTimeMillis());
            message.setBornHost(host);
            message.setStoreHost(host);
            if (!store.putMessage(message).isOk()) {
                number--; // the page cache is busy: a producer sends again
            }
        }
    }

    private static String topic(int number) {
        int topic = number % TOPICS;
        return (topic < 10 ? "topic-0" : "topic-") + topic;
    }

    private static String key(int number) {
        return "order-" + number % 100_000;
    }

    /** What the thread that follows the log does with each message: consume queue and index. */
    private static int dispatch(DefaultMessageStore store, long end) throws Exception {
        return forEach(store, end, buffer -> {
            DispatchRequest request = store.getCommitLog().checkMessageAndReturnSize(buffer, false, false, false);
            if (request.isSuccess() && request.getMsgSize() > 0) {
                store.doDispatch(request);
                return 1;
            }
            return 0;
        });
    }

    private static int decode(DefaultMessageStore store, long end) throws Exception {
        return forEach(store, end, buffer -> {
            if (buffer.getInt(buffer.position() + 4) == -875286124) { // the blank at a segment's end
                buffer.position(buffer.limit());
                return 0;
            }
            MessageDecoder.decode(buffer, true, false);
            return 1;
        });
    }

    /** Takes the record at the buffer's position; returns how many messages it was, 0 at the end of a segment. */
    private interface Step {
        int take(ByteBuffer buffer) throws Exception;
    }

    private static int forEach(DefaultMessageStore store, long end, Step step) throws Exception {
        int found = 0;
        long offset = store.getMinPhyOffset();
        while (offset < end) {
            SelectMappedBufferResult part = store.getCommitLog().getData(offset);
            ByteBuffer buffer = part.getByteBuffer();
            int taken = 0;
            while (buffer.hasRemaining()) {
                int before = buffer.position();
                taken = step.take(buffer);
                found += taken;
                if (taken == 0 || buffer.position() == before) {
                    break;
                }
            }
            offset = taken == 0 ? store.getCommitLog().rollNextFile(offset) : part.getStartOffset() + buffer.position();
            part.release();
        }
        return found;
    }

    private static void expect(int count, int found) {
        if (found != count) {
            throw new IllegalStateException(count + " messages were put, and " + found + " are there");
        }
    }

    private static void figure(String name, int count, long began) {
        System.out.println("FIGURE " + name + " " + Math.round(count / ((System.nanoTime() - began) / 1e9)));
    }
}
