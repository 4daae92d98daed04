"""Generated protobuf code of the Chakra schema (``et_def.proto``).

Made with ``protoc`` 25, whose code runs under every runtime from 5.29 on (newer generators tie their output to one or two
major versions of the runtime)::

    protoc --python_out=. et_def.proto
    sed -i 's/_descriptor_pool.Default()/_descriptor_pool.DescriptorPool()/' et_def_pb2.py

The second command gives the messages a descriptor pool of their own. In the default pool they would collide with any other
package that registers the schema, whichever is imported second.
"""
